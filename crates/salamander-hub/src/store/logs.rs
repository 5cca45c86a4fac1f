//! Logs in blocks of lines, with an index of their words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::db::{Db, DbError, DbRow, OptionalExtension, params};
use super::writer::Touched;
use super::{Store, Tx};
use crate::Error;
use crate::ids::RunId;
use crate::log_line::{Level, level, time};

/// A block is closed when it has so many bytes.
const BLOCK: usize = 16 << 10;
/// Lines of an answer, and at most.
const LINES: usize = 100;
const MOST: usize = 10_000;
/// Blocks that are read at a time until there are enough lines.
const TOGETHER: usize = 32;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// The run.
    pub run: RunId,
    /// The process, such as `worker-0`; `console` is what a command printed.
    pub process: String,
    /// The line's number in its log, from 0.
    pub line: i64,
    /// When it was written, in milliseconds since 1970, where the line says it.
    pub time: Option<i64>,
    /// Its level, where the line says it.
    pub level: Option<Level>,
    /// The whole line.
    pub text: String,
}

/// Which lines are wanted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogQuery {
    /// Words that a line has to have; the last one may be a beginning.
    pub search: Option<String>,
    /// Only this process.
    pub process: Option<String>,
    /// Only lines of this level, or a graver one.
    pub level: Option<Level>,
    /// Only lines since this time, in milliseconds since 1970.
    pub since: Option<i64>,
    /// Only lines until this time.
    pub until: Option<i64>,
    /// Lines after this place, as an answer before gave it: seen lines by process, `worker-0:12,master:3`.
    pub after: Option<String>,
    /// The last lines instead of the first.
    pub tail: Option<bool>,
    /// How many.
    pub limit: Option<usize>,
}

/// Lines, and the place to go on from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogPage {
    /// The lines, by time; lines without one follow the line before.
    pub lines: Vec<LogLine>,
    /// Where to go on.
    pub after: String,
}

/// A block of the table.
struct LogBlock {
    id: i64,
    run: i64,
    process: String,
    first_line: i64,
    text: String,
}

fn read(row: &DbRow<'_>) -> Result<LogBlock, DbError> {
    Ok(LogBlock {
        id: row.get(0)?,
        run: row.get(1)?,
        process: row.get(2)?,
        first_line: row.get(3)?,
        text: row.get(4)?,
    })
}

impl Store {
    /// Lines of a run's logs, those of several processes by their times.
    pub fn run_logs(&self, run: RunId, query: &LogQuery) -> Result<LogPage, Error> {
        let limit = query.limit.unwrap_or(LINES).clamp(1, MOST);
        let words = query.search.as_deref().map(words).unwrap_or_default();
        let mut seen = seen(query.after.as_deref().unwrap_or_default())?;
        let backwards = query.tail.unwrap_or(false) && query.after.is_none();
        self.read(|db| {
            let mut found: Vec<(i64, LogLine)> = Vec::new();
            for process in processes(db, run)? {
                if query.process.as_ref().is_some_and(|wanted| *wanted != process) {
                    continue;
                }
                let from = seen.get(&process).copied().unwrap_or(0);
                let mut part =
                    LogPart { run, process: &process, from, limit, backwards, end: from };
                let lines = part.read(db, query, &words)?;
                seen.insert(process.clone(), part.end);
                found.extend(in_time(lines));
            }
            // Sorting keeps the order of lines of a process.
            found.sort_by_key(|(time, _)| *time);
            if backwards {
                found.drain(..found.len().saturating_sub(limit));
            } else {
                for (_, left) in found.split_off(found.len().min(limit)) {
                    let end = seen.entry(left.process).or_default();
                    *end = (*end).min(left.line);
                }
            }
            let lines = found.into_iter().map(|(_, line)| line).collect();
            let after = seen.iter().map(|(process, line)| format!("{process}:{line}"));
            Ok(LogPage { lines, after: after.collect::<Vec<_>>().join(",") })
        })
    }

    /// Lines of all runs that have these words, the newest first.
    pub fn search_logs(&self, query: &LogQuery) -> Result<Vec<LogLine>, Error> {
        let limit = query.limit.unwrap_or(LINES).clamp(1, MOST);
        let words = query.search.as_deref().map(words).unwrap_or_default();
        if words.is_empty() {
            return Err(Error::Invalid("search: name at least one word".to_string()));
        }
        self.read(|db| {
            let sql = format!(
                "SELECT b.id, b.run, b.process, b.first_line, b.text FROM log_words \
                 JOIN log_blocks b ON b.id = log_words.rowid WHERE {} AND log_words.rowid < ?2 \
                 ORDER BY log_words.rowid DESC LIMIT {TOGETHER}",
                db.dialect().has_words("?1")
            );
            let matching = db.dialect().words(&words);
            let mut statement = db.prepare_cached(&sql)?;
            let (mut found, mut before) = (Vec::new(), i64::MAX);
            while found.len() < limit {
                let rows = statement.query_map(params![matching, before], read)?;
                let blocks = rows.collect::<Result<Vec<LogBlock>, _>>()?;
                for block in &blocks {
                    if query.process.as_ref().is_none_or(|wanted| *wanted == block.process) {
                        found.extend(lines(block, query, &words).into_iter().rev());
                    }
                }
                match blocks.last() {
                    Some(last) if blocks.len() == TOGETHER => before = last.id,
                    _ => break,
                }
            }
            found.truncate(limit);
            Ok(found)
        })
    }
}

/// What is wanted of one process's log.
struct LogPart<'a> {
    run: RunId,
    process: &'a str,
    /// The first line that was not seen.
    from: i64,
    limit: usize,
    backwards: bool,
    /// Set to the first line that was not looked at.
    end: i64,
}

impl LogPart<'_> {
    fn read(&mut self, db: &Db, query: &LogQuery, words: &[String]) -> Result<Vec<LogLine>, Error> {
        let order = if self.backwards { "DESC" } else { "ASC" };
        let matched = match words {
            [] => "?4 = ''".to_string(),
            _ => {
                let has_words = db.dialect().has_words("?4");
                format!("id IN (SELECT rowid FROM log_words WHERE {has_words})")
            }
        };
        let sign = if self.backwards { "<" } else { ">" };
        let sql = format!(
            "SELECT id, run, process, first_line, text, lines FROM log_blocks WHERE run = ?1 AND process = ?2 \
             AND first_line + lines > ?3 AND {matched} AND first_line {sign} ?5 \
             ORDER BY first_line {order} LIMIT {TOGETHER}"
        );
        let mut statement = db.prepare_cached(&sql)?;
        let matching = db.dialect().words(words);
        let (mut found, mut seen) = (Vec::new(), if self.backwards { i64::MAX } else { -1 });
        'read: loop {
            let values = params![self.run.number(), self.process, self.from, matching, seen];
            let rows = statement.query_map(values, |row| Ok((read(row)?, row.get::<i64>(5)?)))?;
            let blocks = rows.collect::<Result<Vec<_>, _>>()?;
            for (block, of_block) in &blocks {
                let mut lines = lines(block, query, words);
                lines.retain(|line| line.line >= self.from);
                if self.backwards {
                    lines.reverse();
                }
                found.extend(lines);
                self.end = self.end.max(block.first_line + of_block);
                if found.len() >= self.limit {
                    break 'read;
                }
            }
            match blocks.last() {
                Some((last, _)) if blocks.len() == TOGETHER => seen = last.first_line,
                _ => break,
            }
        }
        if self.backwards {
            found.truncate(self.limit);
            found.reverse();
        } else if let Some(left) = found.get(self.limit) {
            self.end = left.line;
            found.truncate(self.limit);
        }
        Ok(found)
    }
}

/// Each line with a time to sort it by: its own, or that of the line before.
fn in_time(lines: Vec<LogLine>) -> Vec<(i64, LogLine)> {
    let mut time = i64::MIN;
    let timed = lines.into_iter().map(|line| {
        time = time.max(line.time.unwrap_or(time));
        (time, line)
    });
    timed.collect()
}

/// How many lines of which process were seen: `worker-0:12,master:3`.
fn seen(text: &str) -> Result<BTreeMap<String, i64>, Error> {
    let wrong = || Error::Invalid("after: this is none that an answer gave".to_string());
    let parts = text.split(',').filter(|part| !part.is_empty());
    let part = |part: &str| {
        let (process, line) = part.rsplit_once(':')?;
        Some((process.to_string(), line.parse().ok()?))
    };
    parts.map(|text| part(text).ok_or_else(wrong)).collect()
}

fn processes(db: &Db, run: RunId) -> Result<Vec<String>, Error> {
    let sql = "SELECT DISTINCT process FROM log_blocks WHERE run = ?1 ORDER BY process";
    let mut query = db.prepare_cached(sql)?;
    Ok(query.query_map([run.number()], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// The words of a search, as the index knows them.
pub(super) fn words(search: &str) -> Vec<String> {
    let words = search.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// The lines of a block that are wanted. One without a time goes with the line before.
fn lines(block: &LogBlock, query: &LogQuery, words: &[String]) -> Vec<LogLine> {
    let run = RunId::from_number(block.run);
    let is_timed = query.since.is_some() || query.until.is_some();
    let mut at = if is_timed { block.text.lines().find_map(time) } else { None };
    let wanted = |(number, text): (i64, &str)| {
        let (level, time) = (level(text), time(text));
        at = time.or(at);
        let grave = query.level.is_none_or(|least| level.is_some_and(|level| level >= least));
        let after = query.since.is_none_or(|since| at.is_none_or(|at| at >= since));
        let before = query.until.is_none_or(|until| at.is_none_or(|at| at <= until));
        let lower = if words.is_empty() { String::new() } else { text.to_lowercase() };
        let has_all = words.iter().all(|word| lower.contains(word.as_str()));
        (grave && after && before && has_all).then(|| {
            let (process, text) = (block.process.clone(), text.to_string());
            LogLine { run, process, line: block.first_line + number, time, level, text }
        })
    };
    (0..).zip(block.text.lines()).filter_map(wanted).collect()
}

/// Adds lines to the log of a process.
pub(crate) fn append(
    tx: &Tx<'_>,
    run: RunId,
    process: &str,
    first_line: i64,
    text: &str,
) -> Result<(), Error> {
    let mut number = first_line;
    let mut rest = text;
    let sql = "SELECT id, run, process, first_line, text FROM log_blocks WHERE run = ?1 AND process = ?2 \
               ORDER BY first_line DESC LIMIT 1";
    let open = tx
        .prepare_cached(sql)?
        .query_row(params![run.number(), process], read)
        .optional()?
        .filter(|block| block.text.len() < BLOCK);
    if let Some(block) = open {
        let (now, later) = rest.split_at(cut(rest, BLOCK - block.text.len()));
        let text = &format!("{}{now}", block.text);
        let grown = BlockText { process, first_line: block.first_line, text };
        write(tx, run, Some(block.id), grown)?;
        number += now.lines().count() as i64;
        rest = later;
    }
    while !rest.is_empty() {
        let (now, later) = rest.split_at(cut(rest, BLOCK));
        write(tx, run, None, BlockText { process, first_line: number, text: now })?;
        number += now.lines().count() as i64;
        rest = later;
    }
    tx.touch(Touched::Logs(run.number()));
    Ok(())
}

/// Where whole lines of about so many bytes end.
fn cut(text: &str, bytes: usize) -> usize {
    let from = text.floor_char_boundary(bytes);
    text[from..].find('\n').map_or(text.len(), |at| from + at + 1)
}

/// What is written of a block.
struct BlockText<'a> {
    process: &'a str,
    first_line: i64,
    text: &'a str,
}

/// Writes a block: one that is there already and has grown, or a new one.
fn write(tx: &Tx<'_>, run: RunId, grown: Option<i64>, block: BlockText<'_>) -> Result<(), Error> {
    let BlockText { process, first_line, text } = block;
    let times = || text.lines().filter_map(time);
    let (first, last, lines) = (times().min(), times().max(), text.lines().count() as i64);
    let id = match grown {
        Some(id) => {
            let sql = "UPDATE log_blocks SET lines = ?2, first_time = ?3, last_time = ?4, text = ?5 WHERE id = ?1";
            tx.prepare_cached(sql)?.execute(params![id, lines, first, last, text])?;
            tx.prepare_cached("DELETE FROM log_words WHERE rowid = ?1")?.execute([id])?;
            id
        }
        None => {
            let sql = "INSERT INTO log_blocks (run, process, first_line, lines, first_time, last_time, text) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id";
            let values = params![run.number(), process, first_line, lines, first, last, text];
            tx.prepare_cached(sql)?.query_row(values, |row| row.get(0))?
        }
    };
    let (sql, indexed) = tx.dialect().index(text);
    tx.prepare_cached(sql)?.execute(params![id, indexed])?;
    Ok(())
}

/// Forgets a log that is read again, or all of a run.
pub(crate) fn forget(db: &Db, run: RunId, process: Option<&str>) -> Result<(), Error> {
    let which = "run = ?1 AND (process = ?2 OR ?2 IS NULL)";
    let values = params![run.number(), process];
    let words =
        format!("DELETE FROM log_words WHERE rowid IN (SELECT id FROM log_blocks WHERE {which})");
    db.prepare_cached(&words)?.execute(values)?;
    db.prepare_cached(&format!("DELETE FROM log_blocks WHERE {which}"))?.execute(values)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::for_each_store;
    use super::*;

    const RUN: &str = "3.1";

    fn texts(lines: &[LogLine]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn lines_are_found_by_words_process_level_and_time_and_followed() {
        for_each_store(|store, _| {
            let run: RunId = RUN.parse().expect("a run");
            let first = "2026-11-18T06:57:34.471190Z  INFO starts role=\"worker\"\n\
                         2026-11-18T06:57:35Z  WARN lease expired worker=3\n";
            store.write(move |tx| append(tx, run, "worker-0", 0, first)).expect("written");
            store.write(move |tx| append(tx, run, "master", 0, "no time here\n")).expect("written");
            let query = |query| store.run_logs(run, &query).expect("read");
            let all = query(LogQuery::default());
            assert_eq!((all.lines.len(), all.after.as_str()), (3, "master:1,worker-0:2"));
            let search = |text: &str| LogQuery { search: Some(text.into()), ..LogQuery::default() };
            assert_eq!(query(search("LEASE exp")).lines[0].line, 1);
            assert!(query(search("lease starts")).lines.is_empty(), "not in one line");
            assert!(query(search("\"; DROP TABLE log_blocks; --")).lines.is_empty());
            let level = LogQuery { level: Some(Level::Warn), ..LogQuery::default() };
            assert_eq!(query(level).lines.len(), 1);
            let process = LogQuery { process: Some("master".into()), ..LogQuery::default() };
            assert_eq!(texts(&query(process).lines), ["no time here"]);
            let since = LogQuery {
                since: time("2026-11-18T06:57:35Z "),
                process: Some("worker-0".into()),
                ..LogQuery::default()
            };
            assert_eq!(query(since).lines.len(), 1);
            store.write(move |tx| append(tx, run, "worker-0", 2, "third\n")).expect("written");
            let more = query(LogQuery { after: Some(all.after), ..LogQuery::default() });
            assert_eq!((texts(&more.lines), more.lines[0].line), (vec!["third"], 2));
            let later = LogQuery {
                since: time("2026-11-18T06:57:36Z "),
                process: Some("worker-0".into()),
                ..LogQuery::default()
            };
            assert!(query(later).lines.is_empty(), "it goes with the line before");
            let tail = query(LogQuery { tail: Some(true), limit: Some(1), ..LogQuery::default() });
            assert_eq!(texts(&tail.lines), ["third"]);
            let mut after = None;
            let mut one_by_one = Vec::new();
            for _ in 0..4 {
                let page = query(LogQuery { after, limit: Some(1), ..LogQuery::default() });
                one_by_one.extend(page.lines.into_iter().map(|line| line.text));
                after = Some(page.after);
            }
            assert_eq!(one_by_one.len(), 4, "{one_by_one:?}");
            assert_eq!(one_by_one[0], "no time here");
        });
    }

    #[test]
    fn long_logs_are_cut_into_blocks_without_losing_a_line() {
        for_each_store(|store, _| {
            let run: RunId = RUN.parse().expect("a run");
            let text: String = (0..5000).map(|n| format!("line {n} of a lóng log\n")).collect();
            store.write(move |tx| append(tx, run, "master", 0, &text)).expect("written");
            let all = LogQuery { limit: Some(9999), ..LogQuery::default() };
            let page = store.run_logs(run, &all).expect("read");
            let numbers: Vec<i64> = page.lines.iter().map(|line| line.line).collect();
            assert_eq!(numbers, (0..5000).collect::<Vec<_>>());
            let one = LogQuery { search: Some("4321".into()), ..LogQuery::default() };
            let found = store.search_logs(&one).expect("read");
            assert_eq!(texts(&found), ["line 4321 of a lóng log"]);
            store.write(move |tx| forget(tx, run, None)).expect("forgotten");
            assert!(store.search_logs(&one).expect("read").is_empty());
        });
    }

    #[test]
    fn a_line_of_millions_of_words_is_kept_and_so_are_those_after_it() {
        for_each_store(|store, _| {
            let run: RunId = RUN.parse().expect("a run");
            let mut text: String = (0..300_000_u64).map(|n| format!("{:x} ", n * 7919)).collect();
            text += "\nshort\n";
            store.write(move |tx| append(tx, run, "master", 0, &text)).expect("written");
            let page = store.run_logs(run, &LogQuery::default()).expect("read");
            assert_eq!((page.lines.len(), page.lines[1].text.as_str()), (2, "short"));
            let short = LogQuery { search: Some("short".into()), ..LogQuery::default() };
            assert_eq!(store.search_logs(&short).expect("read").len(), 1);
        });
    }
}
