/* In a VM: the root folder of the guest is root's, and no other user makes a folder there. One who made /sbin would be root: the
 * kernel runs /sbin/modprobe when a program asks for a protocol. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = 65534 };

int main(void)
{
    struct stat root;
    if (stat("/", &root) != 0)
        return 1;
    printf("mode %o, user %u, group %u\n", root.st_mode & 07777, root.st_uid, root.st_gid);
    if (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)
        return 1;
    printf("mkdir: %s\n", mkdir("/made", 0755) == 0 ? "made" : strerror(errno));
    return 0;
}
