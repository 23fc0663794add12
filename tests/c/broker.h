/* The process of a guest's broker. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Its number; -1: there is none. The name of a process is that of its first thread. */
static pid_t broker_process(void)
{
    pid_t found = -1;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        FILE *comm = atoi(entry->d_name) > 0 ? fopen(path, "r") : NULL;
        if (comm && fgets(name, sizeof name, comm) && strcmp(name, "broker\n") == 0)
            found = atoi(entry->d_name);
        if (comm)
            fclose(comm);
    }
    if (processes)
        closedir(processes);
    return found;
}
