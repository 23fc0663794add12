use super::*;
use crate::progress::Silent;

fn cache_with_entry() -> (tempfile::TempDir, Cache, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("cache"));
    let lock = cache.lock("thing", &Silent).unwrap();
    let content = cache.building("thing", &lock).unwrap().join("content");
    make_folder(&content.join("below")).unwrap();
    fs::write(content.join("one"), b"one").unwrap();
    fs::write(content.join("below/two"), b"two").unwrap();
    let (_, entry) = cache.publish("thing", Some("key"), &content, &lock).unwrap();
    (folder, cache, entry)
}

#[test]
fn an_entry_is_found_as_it_was_made() {
    let (_folder, cache, entry) = cache_with_entry();
    assert_eq!(cache.entry("thing", "key"), Some(entry.clone()));
    assert_eq!(fs::read(entry.join("below/two")).unwrap(), b"two");
    assert!(!cache.folder("thing").join(BUILDING).exists());
}

#[test]
fn a_changed_a_missing_and_an_added_file_are_noticed() {
    for damage in ["change", "remove", "add", "truncate manifest"] {
        let (_folder, cache, entry) = cache_with_entry();
        match damage {
            "change" => fs::write(entry.join("one"), b"onE").unwrap(),
            "remove" => fs::remove_file(entry.join("one")).unwrap(),
            "add" => fs::write(entry.join("three"), b"").unwrap(),
            _ => fs::write(entry.join(MANIFEST), b"").unwrap(),
        }
        assert_eq!(cache.entry("thing", "key"), None, "{damage}");
    }
}

#[test]
fn left_overs_of_a_killed_builder_are_wiped() {
    let (_folder, cache, _) = cache_with_entry();
    let left_over = cache.folder("thing").join(BUILDING).join("half");
    make_folder(&left_over).unwrap();
    let lock = cache.lock("thing", &Silent).unwrap();
    cache.building("thing", &lock).unwrap();
    assert!(!left_over.exists());
}

#[test]
fn an_unwritable_cache_names_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), b"").unwrap();
    let error = Cache::at(folder.path().join("file/cache")).check_writable().unwrap_err();
    assert!(error.to_string().contains("file/cache"), "{error}");
}
