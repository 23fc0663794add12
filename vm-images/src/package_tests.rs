use super::*;

#[test]
fn only_concrete_packages_have_a_release() {
    assert_eq!(release_of("linux-image-6.1.0-56-cloud-amd64"), Some("6.1.0-56-cloud-amd64"));
    assert_eq!(release_of("linux-image-unsigned-6.8.0-31-generic"), Some("6.8.0-31-generic"));
    assert_eq!(release_of("linux-image-cloud-amd64"), None);
    assert_eq!(release_of("linux-modules-6.8.0-31-generic"), None);
}

#[test]
fn the_kernel_is_picked_among_the_dependencies() {
    let debian =
        "Package: linux-image-cloud-amd64\nDepends: linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\n";
    assert_eq!(image_dependency(debian).unwrap(), "linux-image-6.1.0-56-cloud-amd64");
    let ubuntu = "Depends: linux-firmware, intel-microcode, linux-image-6.8.0-31-generic | other\n";
    assert_eq!(image_dependency(ubuntu).unwrap(), "linux-image-6.8.0-31-generic");
    assert_eq!(image_dependency("Package: nothing\n"), None);
}
