//! NVIDIA's compiler accepts every kernel that we write for GPUs. It comes from PyPI and needs neither a GPU nor a
//! driver: `pip install nvidia-cuda-nvrtc-cu12`, and `SALAMANDER_PYTHON` names that Python.

use std::path::Path;
use std::process::Command;

use salamander_kernels::cuda_sources;

/// Turing, Ampere and Hopper: the oldest that CubeCL's features differ for, and the newest.
const CAPABILITIES: [u32; 3] = [75, 80, 90];

#[test]
fn every_kernel_is_cuda_that_nvrtc_compiles() {
    let python = std::env::var("SALAMANDER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let found = Command::new(&python).args(["-c", "import nvidia.cuda_nvrtc"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let reason = format!("{python} has no nvidia-cuda-nvrtc-cu12");
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "may not be skipped: {reason}");
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvrtc");
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvrtc/compile.py");
    for capability in CAPABILITIES {
        let sources = cuda_sources(capability).unwrap_or_else(|error| panic!("{error}"));
        let mut command = Command::new(&python);
        command.arg(&script).arg(capability.to_string());
        for (name, source) in &sources {
            let file = folder.join(format!("{name}-sm_{capability}.cu"));
            std::fs::write(&file, source).expect("written");
            command.arg(file);
        }
        let output = command.output().expect("python starts");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "sm_{capability}:\n{out}{err}");
        assert_eq!(out.lines().count(), sources.len(), "{out}");
        assert!(out.lines().all(|line| line.contains(" bytes of PTX")), "{out}");
        println!("{out}");
    }
}
