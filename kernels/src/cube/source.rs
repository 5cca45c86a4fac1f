//! Every kernel as CUDA C++, without a GPU: CubeCL expands it for a made-up NVIDIA device, so that NVIDIA's compiler
//! can say what it thinks of it on machines that have none.

use std::sync::Arc;

use burn::cubecl::ir::features::Features;
use burn::cubecl::ir::settings::{Dim3, KernelSettings};
use burn::cubecl::ir::{
    AddressType, DeviceIdentity, DeviceProperties, HardwareProperties, MemoryDeviceProperties,
    TargetProperties,
};
use burn::cubecl::prelude::BufferCompilationArg;
use burn::cubecl::profile::TimingMethod;
use burn::cubecl::{Compiler, CubeKernel, ExecutionMode, define_kernel};
use cubecl_cpp::shared::{CompilationOptions, CppCompiler, CppSupportedFeatures};
use cubecl_cpp::{register_supported_types, target::Cuda};

use super::{bf16, norm, optimizer, rows};

/// Units of a cube: what CubeCL takes for element-wise work on an NVIDIA GPU.
const UNITS: u32 = 256;

/// The CUDA C++ of every kernel, by its name, for a compute capability such as 75 (Turing) or 90 (Hopper).
pub fn cuda_sources(capability: u32) -> Result<Vec<(&'static str, String)>, String> {
    let options = options(capability);
    kernels()
        .into_iter()
        .map(|(name, kernel)| {
            let wrong = |error: String| format!("{name}: {error}");
            let definition = define_kernel(kernel.as_ref()).map_err(|e| wrong(format!("{e:?}")))?;
            let compiled = CppCompiler::<Cuda>::default().compile(definition, &options);
            Ok((name, compiled.map_err(|e| wrong(format!("{e:?}")))?.source))
        })
        .collect()
}

/// All kernels, in each of their forms.
fn kernels() -> Vec<(&'static str, Box<dyn CubeKernel>)> {
    let settings = || {
        let dim = Dim3::new_1d(UNITS);
        KernelSettings::new(dim, ExecutionMode::Checked, AddressType::U32)
    };
    // What a target says is about matrix units, which no kernel uses.
    let (device, target) = (Arc::new(device()), Arc::new(TargetProperties::default()));
    let buffer = || BufferCompilationArg { inplace: None };
    // A kernel of so many buffers and numbers.
    macro_rules! kernel {
        ($name:literal, $kernel:ty, [$($buffer:ident)*], [$($number:expr),*]) => {{
            let (device, target) = (Arc::clone(&device), Arc::clone(&target));
            let kernel =
                <$kernel>::new(settings(), device, target, $($buffer(),)* $($number),*);
            ($name, Box::new(kernel) as Box<dyn CubeKernel>)
        }};
    }
    vec![
        kernel!("pack", bf16::pack_kernel::PackKernel, [buffer buffer], []),
        kernel!("unpack", bf16::unpack_kernel::UnpackKernel, [buffer buffer], []),
        kernel!("squares", norm::squares_kernel::SquaresKernel, [buffer buffer], []),
        kernel!(
            "plain", optimizer::plain_kernel::PlainKernel,
            [buffer buffer buffer], [(), (), (), ()]
        ),
        kernel!(
            "momentum", optimizer::momentum_kernel::MomentumKernel,
            [buffer buffer buffer buffer], [(), (), (), (), (), false]
        ),
        kernel!(
            "nesterov", optimizer::momentum_kernel::MomentumKernel,
            [buffer buffer buffer buffer], [(), (), (), (), (), true]
        ),
        kernel!(
            "adam", optimizer::adam_kernel::AdamKernel,
            [buffer buffer buffer buffer buffer], [(), (), (), (), (), (), (), (), ()]
        ),
        kernel!("gather", rows::gather_kernel::GatherKernel, [buffer buffer buffer], [()]),
        kernel!("scatter", rows::scatter_kernel::ScatterKernel, [buffer buffer buffer buffer], [()]),
    ]
}

/// What CubeCL's own runtime tells the compiler about a device of this capability.
fn options(capability: u32) -> CompilationOptions {
    let supports_features = CppSupportedFeatures {
        fast_math: true,
        dp4a: true,
        grid_constants: true,
        fast_tanh: capability >= 75,
        clusters: capability >= 90,
        elect_sync: capability >= 90,
    };
    CompilationOptions { supports_features, ..CompilationOptions::default() }
}

/// An NVIDIA GPU as they all are: planes of 32 units, loads of 128 bits.
fn device() -> DeviceProperties {
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: 32,
        plane_size_max: 32,
        max_bindings: 1024,
        max_shared_memory_size: 48 * 1024,
        max_cube_count: (i32::MAX as u32, 65_535, 65_535),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: Some(64),
        num_cpu_cores: None,
        last_level_cache_size: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        max_vector_size: 16,
        cube_mma_reserved_shared_memory: 0,
    };
    let memory = MemoryDeviceProperties::new(1 << 32, 512);
    let (timing, identity) = (TimingMethod::System, DeviceIdentity::default());
    let mut device = DeviceProperties::new(Features::default(), memory, hardware, timing, identity);
    register_supported_types(&mut device);
    device.features.memory_reinterpret = true;
    device.features.alignment = true;
    device
}
