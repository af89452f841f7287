/* A switch in user space for network namespaces: rate and delay of each host's link, hosts that are cut off, and counts of
 * bytes, where the kernel has no netem.
 *
 *   wire FIFO STATS PORT...        ports are interfaces of this namespace; a host's name is its port's without "p-"
 *
 * Commands, one a line, into FIFO (HOST may be `all`):
 *   rate HOST MBIT     both directions of the host's link; 0: no limit
 *   delay HOST MS      one way, on the host's uplink
 *   cut HOST           black hole: nothing is answered, as when a machine loses its power
 *   stats              writes the bytes from each host to each other to STATS; the last line is "end"
 *
 * Packets may be the kernel's large ones (GSO). A link's buffer holds 50 ms; what does not fit is dropped.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_PORTS 128
#define MAX_PACKET 70000
#define MAX_READS 64         /* packets of a port that are read in a row */
#define SOCKET_BUFFER (64 << 20)
#define LINK_BUFFER 0.05     /* seconds */

enum stage { ON_UPLINK, ON_DOWNLINK };

struct packet {
    double due;              /* when it has passed its stage */
    uint64_t order;          /* first come, first served among equal ones */
    int from, to;
    enum stage stage;
    size_t size;             /* with the header of virtio */
    unsigned char *data;
};

struct host {
    char name[IFNAMSIZ];
    int socket, known, cut;
    unsigned char mac[ETH_ALEN];
    double rate, delay;      /* bits per second; seconds */
    double up_free, down_free; /* when its link is free again */
};

static struct packet *heap;
static size_t used, room;
static uint64_t orders;
static struct host hosts[MAX_PORTS];
static uint64_t bytes[MAX_PORTS][MAX_PORTS];
static int ports;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int is_before(const struct packet *a, const struct packet *b)
{
    return a->due < b->due || (a->due == b->due && a->order < b->order);
}

static void push(struct packet p)
{
    if (used == room) {
        room = room ? 2 * room : 1024;
        heap = realloc(heap, room * sizeof *heap);
        if (!heap) abort();
    }
    p.order = orders++;
    size_t i = used++;
    for (; i && is_before(&p, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = p;
}

static struct packet pop(void)
{
    struct packet top = heap[0], last = heap[--used];
    size_t i = 0, child;
    for (; (child = 2 * i + 1) < used; i = child) {
        if (child + 1 < used && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* The time at which a packet has passed a link; negative if the link's buffer is full. */
static double pass(double *free_at, const struct host *host, size_t size, double t)
{
    if (host->rate <= 0) return t;
    if (*free_at < t) *free_at = t;
    if (*free_at - t > LINK_BUFFER) return -1;
    return *free_at += size * 8.0 / host->rate;
}

static size_t on_wire(size_t size)
{
    return size - sizeof(struct virtio_net_hdr);
}

static void forward(int from, int to, const unsigned char *data, size_t size, double t)
{
    if (hosts[from].cut || hosts[to].cut) return;
    bytes[from][to] += on_wire(size);
    double gone = pass(&hosts[from].up_free, &hosts[from], on_wire(size), t);
    if (gone < 0) return;
    unsigned char *copy = malloc(size);
    if (!copy) abort();
    memcpy(copy, data, size);
    push((struct packet){gone + hosts[from].delay, 0, from, to, ON_UPLINK, size, copy});
}

static void write_stats(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return;
    for (int i = 0; i < ports; i++)
        for (int j = 0; j < ports; j++)
            if (i != j) fprintf(f, "%s %s %llu\n", hosts[i].name, hosts[j].name, (unsigned long long)bytes[i][j]);
    fputs("end\n", f);
    fclose(f);
}

static void run_command(const char *line, const char *stats)
{
    char what[32] = "", name[64] = "", number[64] = "";
    sscanf(line, "%31s %63s %63s", what, name, number);
    if (!strcmp(what, "stats")) write_stats(stats);
    for (int i = 0; i < ports; i++) {
        if (strcmp(name, "all") && strcmp(name, hosts[i].name)) continue;
        if (!strcmp(what, "rate")) hosts[i].rate = atof(number) * 1e6;
        if (!strcmp(what, "delay")) hosts[i].delay = atof(number) * 1e-3;
        if (!strcmp(what, "cut")) hosts[i].cut = 1;
    }
}

static void read_commands(int control, const char *stats)
{
    static char lines[4096];
    static size_t filled;
    ssize_t got = read(control, lines + filled, sizeof lines - 1 - filled);
    if (got <= 0) return;
    filled += got;
    lines[filled] = 0;
    char *end, *begin = lines;
    for (; (end = strchr(begin, '\n')); begin = end + 1) {
        *end = 0;
        run_command(begin, stats);
    }
    filled = strlen(begin);
    memmove(lines, begin, filled + 1);
}

static void read_packets(int from)
{
    static unsigned char data[MAX_PACKET];
    for (int number = 0; number < MAX_READS; number++) {
        ssize_t size = read(hosts[from].socket, data, sizeof data);
        if (size < (ssize_t)sizeof(struct virtio_net_hdr) + ETH_HLEN) return;
        const struct ethhdr *head = (const struct ethhdr *)(data + sizeof(struct virtio_net_hdr));
        memcpy(hosts[from].mac, head->h_source, ETH_ALEN);
        hosts[from].known = 1;
        double t = now();
        int to = -1, is_broadcast = head->h_dest[0] & 1;
        for (int j = 0; j < ports && !is_broadcast; j++)
            if (hosts[j].known && !memcmp(hosts[j].mac, head->h_dest, ETH_ALEN)) to = j;
        if (to >= 0 && to != from) forward(from, to, data, size, t);
        for (int j = 0; j < ports && to < 0; j++)
            if (j != from) forward(from, j, data, size, t);
    }
}

static void deliver_due(double t)
{
    while (used && heap[0].due <= t) {
        struct packet p = pop();
        if (p.stage == ON_UPLINK && !hosts[p.from].cut && !hosts[p.to].cut) {
            double passed = pass(&hosts[p.to].down_free, &hosts[p.to], on_wire(p.size), p.due);
            if (passed >= 0) {
                p.stage = ON_DOWNLINK;
                p.due = passed;
                push(p);
                continue;
            }
        } else if (p.stage == ON_DOWNLINK && write(hosts[p.to].socket, p.data, p.size) < 0) {
            /* The host is going down. */
        }
        free(p.data);
    }
}

static int open_port(const char *interface)
{
    int s = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL)), on = 1, large = SOCKET_BUFFER;
    struct sockaddr_ll place = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(interface)};
    struct packet_mreq all = {.mr_ifindex = place.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    setsockopt(s, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on);
    setsockopt(s, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
    setsockopt(s, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on);
    setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof large);
    setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
    setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all);
    if (bind(s, (struct sockaddr *)&place, sizeof place)) {
        perror(interface);
        exit(1);
    }
    return s;
}

int main(int count, char **args)
{
    if (count < 5 || count - 3 > MAX_PORTS) {
        fprintf(stderr, "usage: wire FIFO STATS PORT PORT... (at most %d ports)\n", MAX_PORTS);
        return 2;
    }
    int control = open(args[1], O_RDWR | O_NONBLOCK);
    if (control < 0) {
        perror(args[1]);
        return 1;
    }
    struct pollfd polled[MAX_PORTS + 1];
    for (; ports < count - 3; ports++) {
        const char *interface = args[ports + 3];
        hosts[ports].socket = open_port(interface);
        snprintf(hosts[ports].name, IFNAMSIZ, "%s", interface + (strncmp(interface, "p-", 2) ? 0 : 2));
        polled[ports] = (struct pollfd){.fd = hosts[ports].socket, .events = POLLIN};
    }
    polled[ports] = (struct pollfd){.fd = control, .events = POLLIN};
    for (;;) {
        struct timespec wait = {1, 0};
        if (used) {
            double left = heap[0].due - now();
            if (left < 0) left = 0;
            if (left < 1) wait = (struct timespec){0, (long)(left * 1e9)};
        }
        ppoll(polled, ports + 1, &wait, NULL);
        if (polled[ports].revents) read_commands(control, args[2]);
        for (int i = 0; i < ports; i++)
            if (polled[i].revents) read_packets(i);
        deliver_due(now());
    }
}
