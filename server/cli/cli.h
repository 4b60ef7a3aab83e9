/* The commands of `oinfer`. Each gets the arguments from its own name on (argv[0] is the command)
 * and returns the exit status: 0 done, 1 failed (one line on stderr), 2 wrong usage. */
#ifndef OINFER_SERVER_CLI_CLI_H
#define OINFER_SERVER_CLI_CLI_H

#define CLI_FAILED 1
#define CLI_USAGE  2

int cli_devices(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_complete(int argc, char **argv);
int cli_bench(int argc, char **argv); /* and, by its first argument, one of the next two */
int cli_bench_ops(int argc, char **argv);
int cli_bench_seeds(int argc, char **argv);
int cli_perplexity(int argc, char **argv);
int cli_mkmodel(int argc, char **argv);
int cli_tune(int argc, char **argv);

#endif
