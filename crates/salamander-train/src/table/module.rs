//! A table as one of Burn's modules: it has no parameters, unless it is so small that it is one itself.

use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::Device;

use super::{Home, Table};

const CONTAINER: &str = "Struct:Table";
const WEIGHT: &str = "weight";

type Weight = burn::module::Param<burn::tensor::Tensor<2>>;

impl Table {
    /// Changes the parameter that a small table is.
    fn with_weight(self, change: impl FnOnce(Weight) -> Weight) -> Self {
        match self.home {
            Home::TableRegistry(_) => self,
            Home::Parameter(weight) => Self { home: Home::Parameter(change(weight)), ..self },
        }
    }
}

impl Module for Table {
    fn collect_devices(&self, mut devices: Devices) -> Devices {
        if !devices.contains(&self.device) {
            devices.push(self.device.clone());
        }
        devices
    }

    fn fork(mut self, device: &Device) -> Self {
        self.device = placed(device, self.training);
        self.with_weight(|weight| weight.fork(device))
    }

    fn to_device(mut self, device: &Device) -> Self {
        self.device = placed(device, self.training);
        self.with_weight(|weight| weight.to_device(device))
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        if let Home::Parameter(weight) = &self.home {
            visitor.enter_module(WEIGHT, CONTAINER);
            weight.visit(visitor);
            visitor.exit_module(WEIGHT, CONTAINER);
        }
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        self.with_weight(|weight| {
            mapper.enter_module(WEIGHT, CONTAINER);
            let weight = Module::map(weight, mapper);
            mapper.exit_module(WEIGHT, CONTAINER);
            weight
        })
    }

    fn materialize(self) -> Self {
        self.with_weight(Module::materialize)
    }

    fn valid(&self) -> Self {
        let mut table = self.clone();
        table.training = false;
        table.device = placed(&self.device, false);
        table.with_weight(|weight| Module::valid(&weight))
    }

    fn train(mut self) -> Self {
        self.training = true;
        self.device = placed(&self.device, true);
        self.with_weight(Module::train)
    }
}

fn placed(device: &Device, training: bool) -> Device {
    let plain = device.clone().without_autodiff();
    if training { plain.autodiff() } else { plain }
}

impl ModuleDisplayDefault for Table {
    fn content(&self, content: Content) -> Option<Content> {
        let text = format!("table \"{}\" of {} floats a row", self.name, self.dim);
        content.add_formatted(&text).optional()
    }
}

impl ModuleDisplay for Table {}
