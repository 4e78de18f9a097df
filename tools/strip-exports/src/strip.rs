//! Removes exports from a wasm module, with the code that only they reached.

use std::fmt;

use walrus::Module;

/// Why a module could not be stripped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StripError {
    /// The bytes are not a wasm module; with the parser's reason.
    NotAModule(String),
    /// These exports must stay, but the module has none of that name.
    Missing(Vec<String>),
}

impl fmt::Display for StripError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAModule(reason) => write!(f, "this is not a wasm module: {reason}."),
            Self::Missing(names) => write!(
                f,
                "the module does not export {}, which the host needs: it may have been lost in the build, or the \
                 keep list in tools/strip-exports/src/keep.rs is out of date.",
                names.join(", ")
            ),
        }
    }
}

/// Gives `wasm` back with only the exports named in `keep`, and without what is unreachable from those. First, the
/// left of each pair in `instead` takes the name on the right, and whatever had that name loses it.
pub(crate) fn strip(wasm: &[u8], keep: &[&str], instead: &[(&str, &str)]) -> Result<Vec<u8>, StripError> {
    let mut module =
        Module::from_buffer(wasm).map_err(|error| StripError::NotAModule(format!("{error:#}")))?;

    for (ours, name) in instead {
        let id =
            |name: &str| module.exports.iter().find(|export| export.name == name).map(walrus::Export::id);
        let Some(ours) = id(ours) else { return Err(StripError::Missing(vec![(*ours).to_owned()])) };
        if let Some(theirs) = id(name) {
            module.exports.delete(theirs);
        }
        (*name).clone_into(&mut module.exports.get_mut(ours).name);
    }
    let missing = missing_exports(&module, keep);
    if !missing.is_empty() {
        return Err(StripError::Missing(missing));
    }

    let unwanted: Vec<_> = module
        .exports
        .iter()
        .filter(|export| !keep.contains(&export.name.as_str()))
        .map(walrus::Export::id)
        .collect();
    for id in unwanted {
        module.exports.delete(id);
    }
    walrus::passes::gc::run(&mut module);
    Ok(module.emit_wasm())
}

fn missing_exports(module: &Module, keep: &[&str]) -> Vec<String> {
    keep.iter()
        .filter(|name| !module.exports.iter().any(|export| export.name == **name))
        .map(ToString::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use walrus::FunctionBuilder;

    use super::*;
    use crate::keep::KEEP;

    /// A module with a memory, and for each name an exported function that calls a host function of its own,
    /// `for_NAME`.
    fn module_exporting(names: &[&str]) -> Vec<u8> {
        let mut module = Module::default();
        let memory = module.memories.add_local(false, false, 1, None, None);
        module.exports.add("memory", memory);
        for name in names.iter().filter(|name| **name != "memory") {
            let host_type = module.types.add(&[], &[]);
            let (host, _) = module.add_import_func("env", &format!("for_{name}"), host_type);
            let mut function = FunctionBuilder::new(&mut module.types, &[], &[]);
            function.func_body().call(host);
            let function = function.finish(vec![], &mut module.funcs);
            module.exports.add(name, function);
        }
        module.emit_wasm()
    }

    fn export_names(wasm: &[u8]) -> Vec<String> {
        let module = Module::from_buffer(wasm).expect("what strip emits must parse");
        let mut names: Vec<_> = module.exports.iter().map(|e| e.name.clone()).collect();
        names.sort();
        names
    }

    fn import_names(wasm: &[u8]) -> Vec<String> {
        let module = Module::from_buffer(wasm).expect("what strip emits must parse");
        module.imports.iter().map(|i| i.name.clone()).collect()
    }

    #[test]
    fn only_the_named_exports_stay_and_what_the_others_used_goes() {
        let wasm = module_exporting(&["wanted", "unwanted"]);

        let stripped = strip(&wasm, &["memory", "wanted"], &[]).unwrap();

        assert_eq!(export_names(&stripped), ["memory", "wanted"]);
        assert_eq!(import_names(&stripped), ["for_wanted"]);
    }

    #[test]
    fn an_export_that_is_not_a_function_goes_too() {
        let wasm = module_exporting(&["wanted"]);

        let stripped = strip(&wasm, &["wanted"], &[]).unwrap();

        assert_eq!(export_names(&stripped), ["wanted"]);
    }

    #[test]
    fn an_export_takes_the_place_of_another() {
        let wasm = module_exporting(&["ours", "theirs"]);

        let stripped = strip(&wasm, &["theirs"], &[("ours", "theirs")]).unwrap();

        assert_eq!(export_names(&stripped), ["theirs"]);
        assert_eq!(import_names(&stripped), ["for_ours"]);
        let error = strip(&wasm, &["theirs"], &[("lost", "theirs")]).unwrap_err();
        assert_eq!(error, StripError::Missing(vec!["lost".into()]));
    }

    #[test]
    fn every_missing_name_is_reported_at_once() {
        let wasm = module_exporting(&["wanted"]);

        let error = strip(&wasm, &["wanted", "gone", "lost"], &[]).unwrap_err();

        assert_eq!(error, StripError::Missing(vec!["gone".into(), "lost".into()]));
        assert!(error.to_string().contains("does not export gone, lost, which"));
    }

    /// Without `proxy_on_delete` the filter works, and leaks memory with every request.
    #[test]
    fn a_filter_that_lost_proxy_on_delete_is_refused() {
        let rest: Vec<_> = KEEP.iter().copied().filter(|name| *name != "proxy_on_delete").collect();

        let error = strip(&module_exporting(&rest), KEEP, &[]).unwrap_err();

        assert_eq!(error, StripError::Missing(vec!["proxy_on_delete".into()]));
    }

    #[test]
    fn what_is_not_wasm_is_refused_with_a_reason() {
        let error = strip(b"#!/bin/sh", KEEP, &[]).unwrap_err();

        assert!(error.to_string().starts_with("this is not a wasm module: "), "{error}");
    }
}
