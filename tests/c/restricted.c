/* In a VM: prints what restricts each thread of the broker, and that nothing restricts this program, which the agent has
 * started. Threads with the same rights are one line. */
#define _GNU_SOURCE
#include <unistd.h>

#include "broker.h"

enum { LINES_MAX = 16 };

/* Of a line of /proc/PID/status: the value of a field, or NULL. */
static const char *value(const char *line, const char *field)
{
    size_t length = strlen(field);
    return strncmp(line, field, length) == 0 ? line + length + strspn(line + length, "\t ") : NULL;
}

static void describe(pid_t process, const char *task, char *text, size_t room)
{
    static const char *const fields[] = {"NoNewPrivs:", "Seccomp:", "CapPrm:", "CapEff:", "CapBnd:"};
    char path[300], line[256];
    snprintf(path, sizeof path, "/proc/%d/task/%s/status", process, task);
    FILE *status = fopen(path, "r");
    text[0] = 0;
    while (status && fgets(line, sizeof line, status))
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            const char *found = value(line, fields[i]);
            size_t length = strlen(text);
            if (found)
                snprintf(text + length, room - length, " %s %.*s", fields[i], (int)strcspn(found, "\n"), found);
        }
    if (status)
        fclose(status);
}

static void print(const char *whose, pid_t process)
{
    char lines[LINES_MAX][256], path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    for (struct dirent *task; tasks && count < LINES_MAX && (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.')
            continue;
        describe(process, task->d_name, lines[count], sizeof lines[count]);
        int known = 0;
        while (known < count && strcmp(lines[known], lines[count]) != 0)
            known++;
        if (known == count)
            printf("%s:%s\n", whose, lines[count++]);
    }
    if (tasks)
        closedir(tasks);
}

int main(void)
{
    pid_t broker = broker_process();
    if (broker < 0) {
        printf("there is no broker\n");
        return 1;
    }
    print("broker", broker);
    print("program", getpid());
    return 0;
}
