/* Nobody reads stderr: the library's notices end no program, and SIGPIPE is as it was. They do not wait for room either. */
#include "check.h"
#include <fcntl.h>

static int is_pending(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE);
}

static int is_blocked(void)
{
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    return sigismember(&blocked, SIGPIPE);
}

/* A pipe without room, whose reader does not read. */
static void full(void)
{
    int ends[2];
    static const char bytes[4096];
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO, "no pipe: %s", strerror(errno));
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], bytes, sizeof bytes) > 0)
        ;
    fcntl(ends[1], F_SETFL, 0);
    alarm(LONG_MS / 1000);
    EXPECT(D3DKMTCancelPresents(bytes), STATUS_NOT_SUPPORTED);
    alarm(0);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    full();
    int ends[2];
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO, "no pipe: %s", strerror(errno));
    close(ends[0]);
    close(ends[1]);
    /* Each of these calls prints why it is refused, once. */
    static const char arguments[4096];
    EXPECT(D3DKMTPresent(arguments), STATUS_NOT_SUPPORTED);
    CHECK(!is_blocked() && !is_pending(), "the signal is blocked or pending");

    sigset_t sigpipe, before;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    sigprocmask(SIG_BLOCK, &sigpipe, &before);
    EXPECT(D3DKMTRender(arguments), STATUS_NOT_SUPPORTED);
    CHECK(is_blocked() && !is_pending(), "a blocked signal stays blocked, and is consumed");
    raise(SIGPIPE);
    EXPECT(D3DKMTLock(arguments), STATUS_NOT_SUPPORTED);
    CHECK(is_blocked() && is_pending(), "the program's own signal stays pending");
    CHECK(sigtimedwait(&sigpipe, NULL, &(struct timespec){0, 0}) == SIGPIPE, "no signal");
    sigprocmask(SIG_SETMASK, &before, NULL);

    setenv("GPUPV_BROKER", "/nonexistent", 1);
    EXPECT(D3DKMTEnumAdapters2(&(D3DKMT_ENUMADAPTERS2){0}), STATUS_UNSUCCESSFUL);
    printf("closed_stderr: %s\n", failures ? "not as expected" : "all as expected");
    return failures != 0;
}
