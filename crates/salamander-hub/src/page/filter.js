// The filter language of tables: `state = running and loss < 0.3 and hparam.lr > 0.01 or not name ~ mnist`.
// Pure: text in, a function of a row out.

const TOKEN = /\s*(?:(\()|(\))|(<=|>=|!=|!~|=|<|>|~)|"((?:[^"\\]|\\.)*)"|([^\s()<>=!~"]+))/y;

export function parse(text) {
  const tokens = scan(text);
  if (!tokens.length) return () => true;
  let at = 0;
  const peek = () => tokens[at];
  const isWord = (word) => peek()?.kind === "word" && peek().text.toLowerCase() === word;
  const either = () => {
    let left = both();
    while (isWord("or")) {
      at += 1;
      const [a, b] = [left, both()];
      left = (row) => a(row) || b(row);
    }
    return left;
  };
  const both = () => {
    let left = one();
    while (at < tokens.length && peek().kind !== "close" && !isWord("or")) {
      if (isWord("and")) at += 1;
      const [a, b] = [left, one()];
      left = (row) => a(row) && b(row);
    }
    return left;
  };
  const one = () => {
    const token = peek();
    if (!token) throw new Error("something is missing at the end");
    at += 1;
    if (token.kind === "open") {
      const inner = either();
      if (peek()?.kind !== "close") throw new Error("a bracket is not closed");
      at += 1;
      return inner;
    }
    if (token.kind === "word" && token.text.toLowerCase() === "not") {
      const inner = one();
      return (row) => !inner(row);
    }
    if (token.kind !== "word" && token.kind !== "text") throw new Error(`"${token.text}" is not expected here`);
    if (peek()?.kind !== "operator") {
      const part = token.text.toLowerCase();
      return (row) => [row.name, row.model, row.state, ...(row.labels ?? [])]
        .some((value) => String(value ?? "").toLowerCase().includes(part));
    }
    const operator = tokens[at].text;
    const value = tokens[at + 1];
    if (value?.kind !== "word" && value?.kind !== "text") throw new Error(`a value is missing after ${token.text} ${operator}`);
    at += 2;
    return compare(token.text, operator, value.text);
  };
  const found = either();
  if (at < tokens.length) throw new Error(`"${tokens[at].text}" is not expected here`);
  return found;
}

function scan(text) {
  const tokens = [];
  TOKEN.lastIndex = 0;
  const end = text.trimEnd().length;
  while (TOKEN.lastIndex < end) {
    const from = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match) throw new Error(`"${text.slice(from).trim().slice(0, 20)}" makes no sense`);
    const [, open, close, operator, quoted, word] = match;
    if (open) tokens.push({ kind: "open", text: "(" });
    else if (close) tokens.push({ kind: "close", text: ")" });
    else if (operator) tokens.push({ kind: "operator", text: operator });
    else if (quoted !== undefined) tokens.push({ kind: "text", text: quoted.replace(/\\(.)/g, "$1") });
    else tokens.push({ kind: "word", text: word });
  }
  return tokens;
}

/// The value of a field of a row: its own, a hyperparameter's, a metric's.
export function field(row, name) {
  if (name === "label") return row.labels ?? [];
  if (name.startsWith("hparam.")) return row.flat?.[name.slice(7)];
  if (row.metrics && Object.hasOwn(row.metrics, name)) return row.metrics[name];
  if (Object.hasOwn(row, name)) return row[name];
  return row.flat?.[name];
}

function compare(name, operator, text) {
  const wanted = Number(text);
  const low = text.toLowerCase();
  const test = (value) => {
    const own = String(value ?? "").toLowerCase();
    const order = typeof value === "number" && text.trim() !== "" && !Number.isNaN(wanted)
      ? value - wanted : own < low ? -1 : own > low ? 1 : 0;
    switch (operator) {
      case "=": return order === 0;
      case "<": return order < 0;
      case "<=": return order <= 0;
      case ">": return order > 0;
      case ">=": return order >= 0;
      default: return own.includes(low);
    }
  };
  const positive = operator === "!=" ? "=" : operator === "!~" ? "~" : null;
  if (positive) {
    const same = compare(name, positive, text);
    return (row) => !same(row);
  }
  return (row) => {
    const value = field(row, name);
    if (value === undefined || value === null) return operator === "=" && low === "none";
    return Array.isArray(value) ? value.some(test) : test(value);
  };
}
