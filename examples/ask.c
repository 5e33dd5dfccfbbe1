/* Plays a game against `arena serve` from C, without a library: one observation a line in, one answer a line out.
 *
 *     cc -O2 -o ask ask.c
 *     printf '[0, 0, 0, 0]\n[0.1, 0, 0, 0]\n' | ./ask 127.0.0.1 8000 my-game
 *
 * Every request carries a tick_id. So a request whose answer was lost may be sent again: the server answers it from
 * memory, and the game continues. It needs POSIX sockets. The token, if there is one, is read from ARENA_TOKEN.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRIES 3

static const char *host, *port, *game;
static int connection = -1;
static char answer[1 << 20];

static int open_connection(void) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *each;
    if (getaddrinfo(host, port, &hints, &found) != 0) return -1;
    int opened = -1;
    for (each = found; each && opened < 0; each = each->ai_next) {
        opened = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
        if (opened >= 0 && connect(opened, each->ai_addr, each->ai_addrlen) != 0) { close(opened); opened = -1; }
    }
    freeaddrinfo(found);
    return opened;
}

static int send_all(const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(connection, data, size, MSG_NOSIGNAL);
        if (sent <= 0) return -1;
        data += sent; size -= (size_t)sent;
    }
    return 0;
}

/* Returns the body of the next answer, its status in *status; NULL where the connection broke. */
static char *receive(int *status) {
    size_t have = 0, length = 0;
    char *body = NULL;
    while (!body || have < (size_t)(body - answer) + length) {
        if (have + 1 >= sizeof answer) return NULL;
        ssize_t more = recv(connection, answer + have, sizeof answer - 1 - have, 0);
        if (more <= 0) return NULL;
        have += (size_t)more;
        answer[have] = 0;
        if (!body && (body = strstr(answer, "\r\n\r\n"))) {
            body += 4;
            for (char *line = answer; line && line < body; line = strstr(line, "\r\n") ? strstr(line, "\r\n") + 2 : NULL)
                if (strncasecmp(line, "content-length:", 15) == 0) length = strtoul(line + 15, NULL, 10);
        }
    }
    *status = atoi(answer + 9);
    return body;
}

/* Asks until an answer is there; returns its body, or ends the program. */
static char *step(const char *kind, long tick_id, const char *body) {
    static char request[1 << 16];
    const char *token = getenv("ARENA_TOKEN");
    int size = snprintf(request, sizeof request,
        "POST /step HTTP/1.1\r\nHost: %s\r\ngame_id: %s\r\nstep_kind: %s\r\ntick_id: %ld\r\n%s%s%s"
        "Content-Length: %zu\r\n\r\n%s", host, game, kind, tick_id, token ? "Authorization: Bearer " : "",
        token ? token : "", token ? "\r\n" : "", strlen(body), body);
    if (size < 0 || (size_t)size >= sizeof request) { fprintf(stderr, "the request is too long\n"); exit(1); }
    for (int attempt = 0; attempt < TRIES; attempt++, sleep(1)) {
        if (connection < 0) connection = open_connection();
        int status = 0;
        char *said = connection >= 0 && send_all(request, (size_t)size) == 0 ? receive(&status) : NULL;
        if (said && status == 200) return said;
        if (said && status != 503) { fprintf(stderr, "%s: %d %s\n", kind, status, said); exit(1); }
        if (connection >= 0) close(connection);
        connection = -1;
    }
    fprintf(stderr, "%s: no answer from %s:%s\n", kind, host, port);
    exit(1);
}

int main(int count, char **words) {
    if (count != 4) { fprintf(stderr, "usage: %s HOST PORT GAME_ID < observations\n", words[0]); return 2; }
    host = words[1]; port = words[2]; game = words[3];
    static char line[1 << 15], body[(1 << 15) + 32];
    long tick_id = 0;
    step("start", tick_id++, "");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        snprintf(body, sizeof body, "{\"observation\": %s}", line);
        puts(step("tick", tick_id++, body));
    }
    puts(step("end", tick_id, ""));
    return 0;
}
