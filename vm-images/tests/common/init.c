/* A stand-in for guestd: loads the modules of /etc/gpupv/modules in order, then says that it is ready and stays. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void show(const char *path)
{
    char text[4096];
    int file = open(path, O_RDONLY);
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    printf("init: %s: %.*s\n", path, size > 0 ? (int)size - 1 : 0, text);
}

int main(void)
{
    char path[512];
    mount("proc", "/proc", "proc", 0, "");
    mount("sysfs", "/sys", "sysfs", 0, "");
    FILE *list = fopen("/etc/gpupv/modules", "r");
    while (list && fgets(path, sizeof path, list)) {
        path[strcspn(path, "\n")] = 0;
        int file = open(path, O_RDONLY | O_CLOEXEC);
        long status = syscall(SYS_finit_module, file, "", 0);
        printf("init: module %s: %ld\n", path, status);
        close(file);
    }
    show("/proc/cmdline");
    show("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    struct stat vsock;
    printf("init: vsock family: %s\n", stat("/sys/module/vmw_vsock_virtio_transport", &vsock) ? "absent" : "present");
    printf("gpupv-guestd: ready\n");
    fflush(stdout);
    for (;;)
        pause();
}
