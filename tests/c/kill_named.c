/* Kills every process whose command line has the two given words, except itself, with SIGKILL. A guest
 * has no shell and no pkill. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    DIR *processes = opendir("/proc");
    int killed = 0;
    if (argc != 3 || !processes) {
        fprintf(stderr, "usage: kill_named WORD WORD\n");
        return 2;
    }
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        int pid = atoi(entry->d_name);
        if (pid <= 1 || pid == getpid())
            continue;
        char path[64], line[1024] = "";
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        int file = open(path, O_RDONLY);
        ssize_t length = file < 0 ? 0 : read(file, line, sizeof line - 1);
        close(file);
        for (ssize_t i = 0; i + 1 < length; i++)
            if (line[i] == 0)
                line[i] = ' ';
        if (length > 0 && strstr(line, argv[1]) && strstr(line, argv[2]))
            killed += kill(pid, SIGKILL) == 0;
    }
    closedir(processes);
    return killed ? 0 : 1;
}
