// Percentiles out of the page of metrics: what was counted since the last look.

/** The cumulative counts of a model's requests by their seconds, and how many wait. */
export function counts(page, model) {
  const buckets = [];
  let waiting = 0;
  for (const line of page.split("\n")) {
    if (!line.includes(`model="${model}"`)) continue;
    const value = Number(line.slice(line.lastIndexOf(" ") + 1));
    if (line.startsWith("salamander_serve_waiting{")) waiting = value;
    const bound = line.startsWith("salamander_serve_request_seconds_bucket{") && /le="([^"]+)"/.exec(line);
    if (bound) buckets.push([bound[1] === "+Inf" ? Infinity : Number(bound[1]), value]);
  }
  return { buckets, waiting };
}

/** Seconds that a share of the requests between two looks took at most; nothing where there were none. */
export function percentile(before, now, share) {
  const grown = now.buckets.map(([bound, count], at) => [bound, count - (before.buckets[at]?.[1] ?? 0)]);
  const all = grown.length ? grown[grown.length - 1][1] : 0;
  if (all <= 0) return null;
  let [from, below] = [0, 0];
  for (const [bound, count] of grown) {
    if (count >= share * all) {
      if (bound === Infinity) return from;
      // Within a bucket requests are taken to be spread evenly.
      return from + (bound - from) * ((share * all - below) / Math.max(1, count - below));
    }
    [from, below] = [bound, count];
  }
  return from;
}

/** Requests between two looks. */
export function requests(before, now) {
  const last = ({ buckets }) => (buckets.length ? buckets[buckets.length - 1][1] : 0);
  return Math.max(0, last(now) - last(before));
}
