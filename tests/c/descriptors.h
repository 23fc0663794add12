/* Descriptors from one process to another. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include "check.h"
#include <sys/socket.h>

static inline void send_descriptor(int socket, int descriptor)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec byte = {"x", 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    CHECK(sendmsg(socket, &message, 0) == 1, "sendmsg: %s", strerror(errno));
}

static inline int receive_descriptor(int socket)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte;
    struct iovec into = {&byte, 1};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int descriptor = -1;
    CHECK(recvmsg(socket, &message, 0) == 1, "recvmsg: %s", strerror(errno));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    CHECK(descriptor > 0, "no descriptor came");
    return descriptor;
}

#endif
