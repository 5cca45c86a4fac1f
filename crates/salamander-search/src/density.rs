//! A mixture of products of kernels on the unit cube, one around each of some points and a flat one: where they are
//! dense.

use salamander_core::seed::Rng;

use crate::space::{BELOW_ONE, Distribution, LocatedPoint};

/// An axis with more values than this has no rows of what each of them weighs.
const MOST_CELLS: usize = 32;

/// What the values along an axis are.
#[derive(Clone, Debug)]
pub(crate) enum AxisModel {
    /// All.
    Fine,
    /// Those of a list.
    Choices(usize),
    /// A few numbers, each the value of all places between two.
    Cells(Vec<(f64, f64)>),
    /// Many numbers: the places of one are asked for.
    Grained(Distribution),
}

impl AxisModel {
    pub(crate) fn new(distribution: &Distribution) -> Self {
        if let Some(choices) = distribution.choices() {
            return Self::Choices(choices);
        }
        let Some((low, high)) = distribution.cell(0.0) else { return Self::Fine };
        let mut cells = vec![(low, high)];
        while let Some(&(_, end)) = cells.last()
            && end < 1.0
            && cells.len() <= MOST_CELLS
        {
            // A little beyond the end, so that its rounding does not give the same one again.
            match distribution.cell((end + 1e-9).min(BELOW_ONE)) {
                Some((low, high)) if high > end => cells.push((low, high)),
                _ => break,
            }
        }
        match cells.len() <= MOST_CELLS {
            true => Self::Cells(cells),
            false => Self::Grained(distribution.clone()),
        }
    }

    /// The values beside that of a place, or all others of a list; none where there are too many to tell apart.
    pub(crate) fn neighbours(&self, place: f64) -> Vec<f64> {
        let index = self.index(place);
        match self {
            Self::Choices(count) if *count <= MOST_CELLS => {
                let others = (0..*count).filter(|other| *other != index);
                others.map(|other| (other as f64 + 0.5) / *count as f64).collect()
            }
            Self::Cells(cells) => {
                let beside = [index.checked_sub(1), Some(index + 1)].into_iter().flatten();
                let cells = beside.filter_map(|beside| cells.get(beside));
                cells.map(|(low, high)| (low + high) / 2.0).collect()
            }
            Self::Choices(_) | Self::Grained(_) | Self::Fine => Vec::new(),
        }
    }

    /// Which cell or choice a place is in.
    fn index(&self, place: f64) -> usize {
        match self {
            Self::Choices(count) => ((place * *count as f64) as usize).min(count - 1),
            Self::Cells(cells) => {
                cells.partition_point(|(_, end)| *end <= place).min(cells.len() - 1)
            }
            Self::Fine | Self::Grained(_) => 0,
        }
    }

    /// How likely a value is if all are, or how dense.
    fn flat(&self, place: f64) -> f64 {
        match self {
            Self::Fine => 1.0,
            Self::Choices(count) => 1.0 / *count as f64,
            Self::Cells(cells) => {
                let (low, high) = cells[self.index(place)];
                high - low
            }
            Self::Grained(distribution) => {
                distribution.cell(place).map_or(1.0, |(low, high)| high - low)
            }
        }
    }
}

/// A kernel along one axis.
enum AxisKernel {
    /// All values are as likely.
    Flat,
    /// A bell curve within `[0, 1)`; its row, where values are few.
    Bell { centre: f64, width: f64, mass: f64, row: Option<usize> },
    /// One value of a list, and all others as likely as each other.
    Choice { index: usize, own: f64, other: f64 },
}

/// The mixture.
pub(crate) struct Density<'a> {
    axes: &'a [&'a AxisModel],
    /// By axis, then kernel; the flat one last.
    kernels: Vec<Vec<AxisKernel>>,
    /// Logarithms of what each value of an axis weighs, for each kernel that there is.
    rows: Vec<Vec<f64>>,
    /// Their shares, which add up to 1, and their logarithms.
    weights: Vec<(f64, f64)>,
}

impl<'a> Density<'a> {
    /// Kernels around points, whose weights are in proportion; the flat one has the weight 1.
    pub(crate) fn new(
        axes: &'a [&'a AxisModel],
        points: &[&LocatedPoint],
        weights: &[f64],
    ) -> Self {
        let sum: f64 = weights.iter().sum::<f64>() + 1.0;
        let share = |weight: f64| (weight / sum, libm::log(weight / sum));
        let weights = weights.iter().copied().chain([1.0]).map(share).collect();
        let mut density = Self { axes, kernels: Vec::new(), rows: Vec::new(), weights };
        for (axis, model) in axes.iter().enumerate() {
            let kernels = density.along(axis, model, points);
            density.kernels.push(kernels);
        }
        density
    }

    fn along(
        &mut self,
        axis: usize,
        model: &AxisModel,
        points: &[&LocatedPoint],
    ) -> Vec<AxisKernel> {
        let count = points.len() as f64;
        let widths = widths(axis, points);
        // Rows of this axis: by width and value.
        let mut known: Vec<(u64, usize, usize)> = Vec::new();
        let mut kernels: Vec<AxisKernel> = Vec::with_capacity(points.len() + 1);
        for (point, width) in points.iter().zip(widths) {
            let Some(centre) = point[axis] else {
                kernels.push(AxisKernel::Flat);
                continue;
            };
            if let AxisModel::Choices(choices) = model {
                let prior = 1.0 / (count + 1.0);
                let sum = 1.0 + prior * *choices as f64;
                let (own, other) = (libm::log((1.0 + prior) / sum), libm::log(prior / sum));
                kernels.push(AxisKernel::Choice { index: model.index(centre), own, other });
                continue;
            }
            let mass = normal_between(-centre / width, (1.0 - centre) / width);
            let row = match model {
                AxisModel::Cells(cells) => {
                    let name = (width.to_bits(), model.index(centre));
                    let found = known.iter().find(|row| (row.0, row.1) == name).map(|row| row.2);
                    Some(found.unwrap_or_else(|| {
                        let weigh = |(low, high): &(f64, f64)| {
                            let part =
                                normal_between((low - centre) / width, (high - centre) / width);
                            log(part / mass)
                        };
                        self.rows.push(cells.iter().map(weigh).collect());
                        known.push((name.0, name.1, self.rows.len() - 1));
                        self.rows.len() - 1
                    }))
                }
                _ => None,
            };
            kernels.push(AxisKernel::Bell { centre, width, mass, row });
        }
        kernels.push(AxisKernel::Flat);
        kernels
    }

    /// Draws a place along each axis.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Vec<f64> {
        let mut left = rng.uniform();
        let chosen = self.weights.iter().position(|(weight, _)| {
            left -= weight;
            left < 0.0
        });
        let chosen = chosen.unwrap_or(self.weights.len() - 1);
        let along =
            |(kernels, model): (&Vec<AxisKernel>, &&AxisModel)| match (&kernels[chosen], model) {
                (AxisKernel::Bell { centre, width, .. }, _) => bell(*centre, *width, rng),
                (AxisKernel::Choice { index, own, .. }, AxisModel::Choices(choices)) => {
                    let chosen = match rng.uniform() < libm::exp(*own) {
                        true => *index,
                        false => {
                            let other = rng.below((*choices).max(2) as u64 - 1) as usize;
                            if other >= *index { (other + 1).min(choices - 1) } else { other }
                        }
                    };
                    (chosen as f64 + 0.5) / *choices as f64
                }
                _ => rng.uniform(),
            };
        self.kernels.iter().zip(self.axes).map(along).collect()
    }

    /// The logarithm of the density at a point, over the hyperparameters that are there.
    pub(crate) fn log_density(&self, at: &LocatedPoint) -> f64 {
        let mut logs: Vec<f64> = self.weights.iter().map(|(_, log)| *log).collect();
        for ((kernels, model), place) in self.kernels.iter().zip(self.axes).zip(at) {
            let Some(place) = *place else { continue };
            let (index, flat) = (model.index(place), log(model.flat(place)));
            for (sum, kernel) in logs.iter_mut().zip(kernels) {
                *sum +=
                    match kernel {
                        AxisKernel::Flat => flat,
                        AxisKernel::Choice { index: own_index, own, other } => {
                            if *own_index == index { *own } else { *other }
                        }
                        AxisKernel::Bell { row: Some(row), .. } => self.rows[*row][index],
                        AxisKernel::Bell { centre, width, mass, row: None } => match model {
                            AxisModel::Grained(distribution) => {
                                let (low, high) =
                                    distribution.cell(place).unwrap_or((place, place));
                                let part =
                                    normal_between((low - centre) / width, (high - centre) / width);
                                log(part / mass)
                            }
                            _ => {
                                let away = (place - centre) / width;
                                let scale = width * libm::sqrt(std::f64::consts::TAU) * mass;
                                -away * away / 2.0 - log(scale)
                            }
                        },
                    };
            }
        }
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most + libm::log(logs.iter().map(|log| libm::exp(log - most)).sum())
    }
}

/// How wide each point's kernel is along an axis: as far as its neighbours, within bounds that narrow with the number
/// of points.
fn widths(axis: usize, points: &[&LocatedPoint]) -> Vec<f64> {
    let count = points.len() as f64;
    let least = 1.0 / (count + 2.0).min(100.0);
    let mut order: Vec<usize> =
        (0..points.len()).filter(|index| points[*index][axis].is_some()).collect();
    let place = |index: usize| points[index][axis].unwrap_or(0.5);
    order.sort_by(|a, b| place(*a).total_cmp(&place(*b)));
    let mut widths = vec![1.0; points.len()];
    let last = order.len().saturating_sub(1);
    for (position, index) in order.iter().enumerate() {
        let here = place(*index);
        let below = if position == 0 { None } else { Some(here - place(order[position - 1])) };
        let above = if position == last { None } else { Some(place(order[position + 1]) - here) };
        let widest = match (below, above) {
            (None, None) => here.max(1.0 - here),
            (below, above) => below.unwrap_or(0.0).max(above.unwrap_or(0.0)),
        };
        widths[*index] = widest.clamp(least, 1.0);
    }
    widths
}

fn log(value: f64) -> f64 {
    libm::log(value.max(1e-300))
}

/// A draw from a bell curve within `[0, 1)`.
fn bell(centre: f64, width: f64, rng: &mut Rng) -> f64 {
    for _ in 0..64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.uniform()));
        let value = centre + width * radius * libm::cos(std::f64::consts::TAU * rng.uniform());
        if (0.0..1.0).contains(&value) {
            return value;
        }
    }
    centre.clamp(0.0, BELOW_ONE)
}

/// The mass of the standard normal distribution between two places.
fn normal_between(low: f64, high: f64) -> f64 {
    let root = std::f64::consts::SQRT_2;
    // From the side on which both are, so that the tails do not vanish.
    match low > 0.0 {
        true => 0.5 * (libm::erfc(low / root) - libm::erfc(high / root)),
        false => 0.5 * (libm::erfc(-high / root) - libm::erfc(-low / root)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Space;

    fn axes(text: &str) -> Vec<AxisModel> {
        let node = salamander_core::yaml::parse(text).expect("YAML");
        let space = Space::read(&node).expect("a space");
        space.drawn().map(|(_, _, distribution)| AxisModel::new(distribution)).collect()
    }

    /// The middle of every cell or choice of an axis.
    fn middles(model: &AxisModel) -> Vec<f64> {
        match model {
            AxisModel::Choices(count) => {
                (0..*count).map(|index| (index as f64 + 0.5) / *count as f64).collect()
            }
            AxisModel::Cells(cells) => cells.iter().map(|(low, high)| (low + high) / 2.0).collect(),
            AxisModel::Fine | AxisModel::Grained(_) => Vec::new(),
        }
    }

    #[test]
    fn what_all_values_weigh_adds_up_to_one() {
        let axes =
            axes("a: {suggest_int: [0, 9]}\nb: {choice: [x, y, z]}\nc: {lograndint: [1, 9]}");
        let models: Vec<&AxisModel> = axes.iter().collect();
        assert_eq!(models.iter().map(|model| middles(model).len()).collect::<Vec<_>>(), [10, 3, 8]);
        let points = [[Some(0.05), Some(0.9), Some(0.5)], [Some(0.95), Some(0.1), None]];
        let points: Vec<LocatedPoint> = points.iter().map(|point| point.to_vec()).collect();
        let points: Vec<&LocatedPoint> = points.iter().collect();
        let density = Density::new(&models, &points, &[1.0, 0.5]);
        let mut sum = 0.0;
        for a in middles(models[0]) {
            for b in middles(models[1]) {
                for c in middles(models[2]) {
                    sum += density.log_density(&vec![Some(a), Some(b), Some(c)]).exp();
                }
            }
        }
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn neighbours_are_the_values_beside_or_all_others_of_a_list() {
        let axes = axes("a: {suggest_int: [0, 3]}\nb: {choice: [x, y, z]}\nc: {uniform: [0, 1]}");
        assert_eq!(axes[0].neighbours(0.1), [0.375]);
        assert_eq!(axes[0].neighbours(0.375), [0.125, 0.625]);
        assert_eq!(axes[1].neighbours(0.5), [0.5 / 3.0, 2.5 / 3.0]);
        assert_eq!(axes[2].neighbours(0.5), [0.0; 0]);
    }

    #[test]
    fn draws_are_near_the_points_and_in_range() {
        let axes = axes("a: {uniform: [0, 1]}\nb: {suggest_int: [0, 9999]}\nc: {choice: [x, y]}");
        assert!(matches!(axes[0], AxisModel::Fine) && matches!(axes[1], AxisModel::Grained(_)));
        let models: Vec<&AxisModel> = axes.iter().collect();
        let points: Vec<LocatedPoint> = (0..20)
            .map(|n| vec![Some(0.2 + 0.001 * f64::from(n)), Some(0.5), Some(0.25)])
            .collect();
        let points: Vec<&LocatedPoint> = points.iter().collect();
        let density = Density::new(&models, &points, &[1.0; 20]);
        let mut rng = Rng::new(1);
        let draws: Vec<Vec<f64>> = (0..200).map(|_| density.draw(&mut rng)).collect();
        assert!(draws.iter().flatten().all(|place| (0.0..1.0).contains(place)));
        let near = draws.iter().filter(|draw| (draw[0] - 0.2).abs() < 0.15).count();
        assert!(near > 160, "{near}");
        let at = |a: f64| density.log_density(&vec![Some(a), Some(0.5), Some(0.25)]);
        assert!(at(0.2) > at(0.7) + 1.0);
    }
}
