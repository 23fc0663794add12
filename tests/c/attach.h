/* Attaches at the broker without libdxcore.so, by the messages of proto/proto/attach.proto. */
#ifndef ATTACH_H
#define ATTACH_H

#include "check.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { TOKEN_BYTES = 16 };

/* Attaches this process; returns stream, fence memory and token. Leaves the broker's connection open. */
static inline void attach_by_hand(int descriptors[2], char token[TOKEN_BYTES])
{
    /* Attach { version }: the tests define PROTOCOL_VERSION from the crate proto. */
    static const char attach[] = {0x0a, 0x02, 0x08, PROTOCOL_VERSION};
    _Static_assert(PROTOCOL_VERSION < 0x80, "a varint of one byte");
    const char *path = getenv("GPUPV_BROKER");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path ? path : "/run/gpupv/broker.sock");
    int broker = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(connect(broker, (struct sockaddr *)&address, sizeof address) == 0, "connect: %s", strerror(errno));
    CHECK(send(broker, attach, sizeof attach, 0) == sizeof attach, "send");
    char packet[4096], control[256];
    struct iovec part = {packet, sizeof packet};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    CHECK(recvmsg(broker, &message, 0) > 2 + TOKEN_BYTES, "no reply");
    CHECK(packet[0] == 0x12 && packet[1] == TOKEN_BYTES, "the reply does not begin with a token");
    memcpy(token, packet + 2, TOKEN_BYTES);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    int good = rights && rights->cmsg_len == CMSG_LEN(2 * sizeof(int));
    CHECK(good, "not two descriptors");
    descriptors[0] = descriptors[1] = -1;
    if (good)
        memcpy(descriptors, CMSG_DATA(rights), 2 * sizeof(int));
}

#endif
