/* `oinfer`: the engine at the command line. A table of commands and their dispatch; no state. */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "server/cli/cli.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"devices", cli_devices, "list the OpenCL devices and what they can do"},
    {"inspect", cli_inspect, "show what is in a GGUF file"},
    {"complete", cli_complete, "continue a text"},
    {"bench", cli_bench, "measure prompt and generation speed"},
    {"perplexity", cli_perplexity, "score a text"},
    {"tune", cli_tune, "find the fastest configurations of kernels"},
    {"mkmodel", cli_mkmodel, "write a synthetic model of a given shape"},
};

static void print_help(FILE *out)
{
    fprintf(out, "usage: oinfer COMMAND [arguments]\n\ncommands:\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\noinfer COMMAND --help tells a command's arguments; oinfer --version the "
                 "version.\n");
}

int main(int argc, char **argv)
{
    int child = engine_child_main(argc, argv);
    if (child >= 0)
        return child;
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("oinfer %s\n", OINFER_VERSION);
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "oinfer: unknown command \"%s\"\n", argv[1]);
    print_help(stderr);
    return CLI_USAGE;
}
