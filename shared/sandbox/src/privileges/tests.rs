use super::*;

const NOBODY: u32 = 65534;

/// Becomes that user in a child process that has these numbers and groups before. Its exit code is 0 if it could, and
/// then is in no group of root's; 1 if it was refused.
fn in_child(uid: u32, gid: u32, groups: &[u32]) -> c_int {
    let user = User { name: c"nobody".into(), uid: NOBODY, gid: NOBODY };
    // SAFETY: the child has one thread and leaves by `_exit`. The C library makes its allocator safe over a fork.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::setgroups(groups.len(), groups.as_ptr());
            libc::setresgid(gid, gid, gid);
            libc::setresuid(uid, uid, uid);
            if user.switch_to().is_err() {
                libc::_exit(1);
            }
            let left = rustix::process::getgroups().unwrap_or_default();
            let is_roots = left.iter().any(|group| group.as_raw() == 0) || libc::getegid() == 0;
            libc::_exit(if is_roots { 2 } else { 0 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status)
    }
}

#[test]
fn a_user_is_in_their_own_groups_only() {
    if !is_root() {
        return eprintln!("skipped: only root can try other users and groups");
    }
    assert_eq!(in_child(0, 0, &[0, 4]), 0, "root becomes that user");
    assert_eq!(in_child(NOBODY, NOBODY, &[]), 0, "a process of that user");
    assert_eq!(in_child(NOBODY, NOBODY, &[NOBODY]), 0, "with their group twice");
    assert_eq!(in_child(NOBODY, NOBODY, &[0]), 1, "with a group of root's");
    assert_eq!(in_child(NOBODY, 0, &[]), 1, "with root's group as its first");
    assert_eq!(in_child(1, 1, &[]), 1, "a process of another user");
}
