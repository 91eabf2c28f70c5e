//! Links libspeccompile. SPECCOMPILE_LIBRARY: the path of the library, as `python -m speccompile.native --library` prints it.
use std::{env, path::Path};

fn main() {
    println!("cargo:rerun-if-env-changed=SPECCOMPILE_LIBRARY");
    if let Some(folder) = env::var("SPECCOMPILE_LIBRARY").ok().as_ref().and_then(|path| Path::new(path).parent()) {
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    }
    println!("cargo:rustc-link-lib=dylib=speccompile");
}
