/* The limits: the same work in C, with nothing around it.
 *
 *   limits spawn            for each line on stdin: spawn `bash -c 'echo hi'`, print microseconds
 *   limits gen BYTES        write so many bytes of text lines
 *   limits capture F BYTES  spawn `gen`, read its pipe, write file F, print seconds
 *   limits many N           N times `sleep 0.2; echo x` at once, print seconds
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

/* Spawn with stdout and stderr on one pipe, in a session of its own; returns the reading end. */
static int spawn(char *const argv[], pid_t *pid, int size) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC)) die("pipe2");
  if (size) fcntl(pipe_ends[1], F_SETPIPE_SZ, size);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  if (posix_spawn(pid, argv[0], &actions, &attributes, argv, environ)) die("posix_spawn");
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(pipe_ends[1]);
  return pipe_ends[0];
}

static void one_by_one(void) {
  char line[64], buffer[65536];
  char *argv[] = {"/bin/bash", "-c", "echo hi", NULL};
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (fgets(line, sizeof line, stdin)) {
    double begin = now();
    pid_t pid;
    int fd = spawn(argv, &pid, 0);
    while (read(fd, buffer, sizeof buffer) > 0) {}
    close(fd);
    waitpid(pid, NULL, 0);
    printf("%.1f\n", (now() - begin) * 1e6);
  }
}

static void generate(long bytes) {
  static char block[1 << 18];
  size_t filled = 0;
  for (int i = 0; filled < sizeof block; i++) {
    char line[80];
    int n = snprintf(line, sizeof line, "%07d the quick brown fox jumps over the lazy dog, again\n", i);
    for (int k = 0; k < n && filled < sizeof block; k++) block[filled++] = line[k];
  }
  while (bytes > 0) {
    ssize_t n = write(1, block, bytes < (long)sizeof block ? (size_t)bytes : sizeof block);
    if (n <= 0) die("write");
    bytes -= n;
  }
}

static void capture(char *self, char *path, char *bytes) {
  char *argv[] = {self, "gen", bytes, NULL};
  char *buffer = malloc(1 << 18);
  double begin = now();
  pid_t pid;
  int fd = spawn(argv, &pid, 1 << 20);
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ssize_t n;
  while ((n = read(fd, buffer, 1 << 18)) > 0)
    if (write(file, buffer, n) != n) die("write");
  close(file);
  waitpid(pid, NULL, 0);
  printf("%.6f\n", now() - begin);
}

static void many(int count) {
  struct pollfd *fds = calloc(count, sizeof *fds);
  pid_t *pids = calloc(count, sizeof *pids);
  char *argv[] = {"/bin/bash", "-c", "sleep 0.2; echo x", NULL};
  char buffer[4096];
  double begin = now();
  for (int i = 0; i < count; i++) {
    fds[i].fd = spawn(argv, &pids[i], 0);
    fds[i].events = POLLIN;
  }
  for (int left = count; left;) {
    poll(fds, count, -1);
    for (int i = 0; i < count; i++) {
      if (fds[i].fd < 0 || !fds[i].revents) continue;
      if (read(fds[i].fd, buffer, sizeof buffer) > 0) continue;
      close(fds[i].fd);
      fds[i].fd = -1;
      waitpid(pids[i], NULL, 0);
      left--;
    }
  }
  printf("%.6f\n", now() - begin);
}

int main(int count, char **words) {
  if (count == 2 && !strcmp(words[1], "spawn")) one_by_one();
  else if (count == 3 && !strcmp(words[1], "gen")) generate(atol(words[2]));
  else if (count == 4 && !strcmp(words[1], "capture")) capture(words[0], words[2], words[3]);
  else if (count == 3 && !strcmp(words[1], "many")) many(atoi(words[2]));
  else return 2;
  return 0;
}
