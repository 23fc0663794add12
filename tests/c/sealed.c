/* What a process can do with the descriptor of its fence memory: read, and nothing else. It attaches by
 * hand, because the library keeps the descriptor to itself. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { PAGE = 4096 };

static int refused(const char *what, int failed)
{
    CHECK(failed, "%s was allowed", what);
    printf("%s: %s\n", what, failed ? "refused" : "ALLOWED");
    return failed;
}

/* Attaches and returns the second descriptor of the reply. */
static int receive_memory(void)
{
    static const char attach_version_1[] = {0x0a, 0x02, 0x08, 0x01};
    const char *path = getenv("GPUPV_BROKER");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path ? path : "/run/gpupv/broker.sock");
    int broker = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(connect(broker, (struct sockaddr *)&address, sizeof address) == 0, "connect: %s", strerror(errno));
    CHECK(send(broker, attach_version_1, sizeof attach_version_1, 0) == sizeof attach_version_1, "send");
    char packet[4096], control[256];
    struct iovec part = {packet, sizeof packet};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    CHECK(recvmsg(broker, &message, 0) > 0, "no reply");
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    int descriptors[2] = {-1, -1};
    CHECK(rights && rights->cmsg_len == CMSG_LEN(sizeof descriptors), "not two descriptors");
    if (rights)
        memcpy(descriptors, CMSG_DATA(rights), sizeof descriptors);
    return descriptors[1];
}

int main(void)
{
    int memory = receive_memory();
    void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, memory, 0);
    CHECK(page != MAP_FAILED, "cannot be read: %s", strerror(errno));
    printf("reading: %s\n", page != MAP_FAILED ? "allowed" : "REFUSED");
    refused("making the mapping writable", mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0);
    refused("a writable mapping", mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED);
    refused("a write", pwrite(memory, "x", 1, 0) < 0);

    /* Opened again for writing, as the root of a guest may: the seals must hold. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    int again = open(path, O_RDWR);
    refused("a writable mapping of a new descriptor",
            again < 0 || mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
    refused("a write to a new descriptor", again < 0 || pwrite(again, "x", 1, 0) < 0);
    refused("making it longer", again < 0 || ftruncate(again, 64 * PAGE) != 0);
    refused("making it shorter", again < 0 || ftruncate(again, 0) != 0);
    refused("punching a hole",
            again < 0 || fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) != 0);
    refused("another seal", again < 0 || fcntl(again, F_ADD_SEALS, F_SEAL_WRITE) != 0);
    printf("%s\n", failures ? "sealed: FAILED" : "sealed: all as expected");
    return failures != 0;
}
