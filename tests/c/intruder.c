/* A process of a guest that connects to the host's vsock ports without guestd. The host refuses it. */
#include "attach.h"
#include <linux/vm_sockets.h>

enum { GUESTD_PORT = 7000, CHANNEL_PORT = 7001, EVENT_CHANNEL_PORT = 7002, NO_PORT = 9999, PRIVILEGED = 1000 };

/* Connects to the host, from a port below 1024 if `privileged`; -1 if it is refused. */
static int connect_host(unsigned port, unsigned from)
{
    struct sockaddr_vm host = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = port};
    struct sockaddr_vm own = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = from};
    int stream = socket(AF_VSOCK, SOCK_STREAM, 0);
    CHECK(stream >= 0, "socket: %s", strerror(errno));
    CHECK(!from || bind(stream, (struct sockaddr *)&own, sizeof own) == 0, "bind: %s", strerror(errno));
    if (connect(stream, (struct sockaddr *)&host, sizeof host) == 0)
        return stream;
    close(stream);
    return -1;
}

/* Sends a Hello with a token; 1 if the stream is open afterwards, 0 if a Goodbye about the token closed it. */
static int greet(int stream, const char *token)
{
    char frame[6 + TOKEN_BYTES + 1] = {2 + 2 + 2 + TOKEN_BYTES, 0x12, 2 + 2 + TOKEN_BYTES, 0x08, PROTOCOL_VERSION, 0x12, TOKEN_BYTES};
    char answer[256] = "";
    memcpy(frame + 7, token, TOKEN_BYTES);
    CHECK(send(stream, frame, sizeof frame, MSG_NOSIGNAL) == sizeof frame, "send: %s", strerror(errno));
    CHECK(recv(stream, answer, sizeof answer, 0) > 0, "no answer: %s", strerror(errno));
    if (!memmem(answer, sizeof answer, "token", 5))
        return 1;
    CHECK(recv(stream, answer, sizeof answer, 0) <= 0, "more than a Goodbye");
    return 0;
}

/* Claims to be the event channel of an event; 1 if anything but the end of the stream follows. */
static int event_channel(int stream, const char *token)
{
    char byte;
    CHECK(send(stream, token, TOKEN_BYTES, MSG_NOSIGNAL) == TOKEN_BYTES, "send: %s", strerror(errno));
    return recv(stream, &byte, 1, 0) > 0;
}

int main(void)
{
    int descriptors[2];
    char token[TOKEN_BYTES], wrong[TOKEN_BYTES] = "a guess";
    attach_by_hand(descriptors, token);
    CHECK(connect_host(GUESTD_PORT, 0) < 0, "an ordinary process can connect as guestd");
    CHECK(connect_host(GUESTD_PORT, PRIVILEGED) < 0, "a second guestd can connect");
    CHECK(connect_host(NO_PORT, 0) < 0, "a port without a service accepts connections");
    CHECK(greet(connect_host(CHANNEL_PORT, 0), wrong) == 0, "a guessed token opens a stream");
    CHECK(greet(descriptors[0], token) == 1, "its own token does not open its stream");
    CHECK(greet(connect_host(CHANNEL_PORT, 0), token) == 0, "a used token opens a second stream");
    CHECK(event_channel(connect_host(EVENT_CHANNEL_PORT, 0), wrong) == 0, "a guessed token opens an event channel");
    CHECK(event_channel(connect_host(EVENT_CHANNEL_PORT, 0), token) == 0, "a stream's token opens an event channel");
    printf("%s\n", failures ? "intruder: FAILED" : "intruder: got nothing");
    return failures != 0;
}
