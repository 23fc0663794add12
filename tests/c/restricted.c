/* In a VM: sends the broker a descriptor that no request has, which a thread of its own closes; then prints what restricts each thread of the broker, and that nothing restricts this program, which the agent has
 * started. Threads with the same rights are one line. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker.h"

enum { LINES_MAX = 16 };

/* Of a line of /proc/PID/status: the value of a field, or NULL. */
static const char *value(const char *line, const char *field)
{
    size_t length = strlen(field);
    return strncmp(line, field, length) == 0 ? line + length + strspn(line + length, "\t ") : NULL;
}

/* Of a task that has ended since it was listed: an empty text. */
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

/* How willingly the system kills it when memory ends: -1000 is never. */
static int oom_score_adjustment(pid_t process)
{
    char path[64];
    int adjustment = 0;
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", process);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%d", &adjustment) != 1)
        adjustment = 1001;
    if (file)
        fclose(file);
    return adjustment;
}

static void print(const char *whose, pid_t process)
{
    char lines[LINES_MAX][256], path[64];
    int count = 0;
    printf("%s: oom_score_adj %d\n", whose, oom_score_adjustment(process));
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    for (struct dirent *task; tasks && count < LINES_MAX && (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.')
            continue;
        describe(process, task->d_name, lines[count], sizeof lines[count]);
        if (lines[count][0] == 0)
            continue;
        int known = 0;
        while (known < count && strcmp(lines[known], lines[count]) != 0)
            known++;
        if (known == count)
            printf("%s:%s\n", whose, lines[count++]);
    }
    if (tasks)
        closedir(tasks);
}

/* Returns whether the broker has closed the connection, as it does for what is no request. */
static int sends_a_pipe(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/gpupv/broker.sock"};
    int broker = socket(AF_UNIX, SOCK_SEQPACKET, 0), pipes[2];
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    if (pipe(pipes) || connect(broker, (struct sockaddr *)&address, sizeof address))
        return 0;
    memcpy(CMSG_DATA(rights), &pipes[0], sizeof(int));
    if (sendmsg(broker, &message, 0) != 1)
        return 0;
    close(pipes[0]);
    char reply[256];
    while (recv(broker, reply, sizeof reply, 0) > 0)
        ;
    /* The pipe has no reader once the broker's thread has closed it. */
    struct pollfd closed = {.fd = pipes[1]};
    return poll(&closed, 1, -1) == 1 && closed.revents & POLLERR;
}

int main(void)
{
    pid_t broker = broker_process();
    if (broker < 0 || !sends_a_pipe() || broker_process() != broker) {
        printf("there is no broker, or it has ended\n");
        return 1;
    }
    print("broker", broker);
    print("program", getpid());
    return 0;
}
