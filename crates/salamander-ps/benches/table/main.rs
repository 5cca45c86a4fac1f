//! How fast tables are beside what the memory itself allows, in one run and on one thread.
//!
//! What is compared takes turns in short rounds, so that a change of the machine's speed hits all
//! alike; figures are medians over the rounds, of times and of the ratios within a round. Limits get
//! the same help as the table: rows fetched ahead, large pages. `cargo bench -p salamander-ps --bench
//! table [lookup|update|rows]` runs all or one.
//!
//! # Layout
//! - `lookup`: batches of rows, beside a raw gather and a table with a lock for each key
//! - `update`: fused optimizers, beside a stream that reads and writes the same bytes
//! - `rows`: memory of a row, and seconds to save and restore ten million of them
//! - `flat`: arrays as fast as the machine has them; `baseline`: the table with locks

use rustix::time::{ClockId, clock_gettime};

#[path = "../../../../benches/src/asked.rs"]
mod asked;
mod baseline;
mod flat;
mod lookup;
#[path = "../../../../benches/src/record.rs"]
mod record;
mod rows;
mod update;

use asked::AskedParts;
use record::Record;

fn main() {
    let Some(asked) = AskedParts::read() else { return };
    let record = Record::begin("table");
    if asked.has("lookup") {
        lookup::measure(&record);
    }
    if asked.has("update") {
        update::measure(&record);
    }
    if asked.has("rows") {
        rows::measure(&record);
    }
}

/// Something to be timed.
type Work<'a> = (&'a str, Box<dyn FnMut() + 'a>);

/// Lets each kind of work take its turn in every round; prints nanoseconds per row, and how fast each
/// is beside the first.
fn race((record, title): (&Record, &str), rounds: usize, rows: usize, mut work: Vec<Work<'_>>) {
    let mut times = vec![Vec::new(); work.len()];
    work.iter_mut().for_each(|(_, run)| run());
    for _ in 0..rounds {
        for ((_, run), times) in work.iter_mut().zip(&mut times) {
            let start = cpu_seconds();
            run();
            times.push((cpu_seconds() - start) * 1e9 / rows as f64);
        }
    }
    let first = times[0].clone();
    for ((name, _), times) in work.iter().zip(times) {
        let ratios = times.iter().zip(&first).map(|(time, first)| time / first).collect();
        let (ratio, time) = (median(ratios), median(times));
        record.figure(&format!("{title}, {name}"), ("ns/row", "less"), time, None);
        println!("  {name:<44} {time:>8.1} ns/row {:>7.1} M rows/s {ratio:>7.2}", 1e3 / time);
    }
}

/// Seconds of processor that this process has used: the same as the clock's on an idle machine, and
/// fair on a busy one.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The middle value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
