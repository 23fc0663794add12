/* A process can only read through the descriptor of its fence memory. This program attaches by hand,
 * because the library does not expose the descriptor. */
#include "attach.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static int refused(const char *what, int failed)
{
    CHECK(failed, "%s was allowed", what);
    printf("%s: %s\n", what, failed ? "refused" : "ALLOWED");
    return failed;
}

int main(void)
{
    int descriptors[2];
    char token[TOKEN_BYTES];
    attach_by_hand(descriptors, token);
    int memory = descriptors[1];
    void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, memory, 0);
    CHECK(page != MAP_FAILED, "cannot be read: %s", strerror(errno));
    printf("reading: %s\n", page != MAP_FAILED ? "allowed" : "REFUSED");
    refused("making the mapping writable", mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0);
    refused("a writable mapping", mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED);
    refused("a write", pwrite(memory, "x", 1, 0) < 0);

    /* Opens it again for writing, as root in a guest may: the seals must refuse writes. */
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
