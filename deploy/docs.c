/* Writes the manual pages and shell completions at build time: the daemon's from the option table,
 * the command line's from what it says of itself, so that neither can differ from the program. No
 * state.
 *
 *   docs oinferd.8 | oinferd.conf.5 | oinferd.bash
 *   docs oinfer.1 | oinfer.bash HELP COMMAND=HELP...     files that hold the output of --help
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

#define HELP_MAX_BYTES 65536
#define FLAG_MAX_BYTES 64

/* Prints text for roff: backslashes and hyphens as themselves, no line that looks like a request.
 */
static void print_roff(const char *text)
{
    bool line_start = true;
    for (const char *p = text; *p != '\0'; p++) {
        if (line_start && (*p == '.' || *p == '\''))
            fputs("\\&", stdout);
        if (*p == '\\')
            fputs("\\e", stdout);
        else if (*p == '-')
            fputs("\\-", stdout);
        else
            putchar(*p);
        line_start = *p == '\n';
    }
}

static void print_title(const char *name, const char *section, const char *what)
{
    printf(".TH %s %s \"\" \"OInfer %s\" \"OInfer manual\"\n.SH NAME\n%s \\- %s\n", name, section,
           OINFER_VERSION, name, what);
}

/* What may be given for a row: its unit or choices. */
static const char *value_of(const struct config_option *o)
{
    return o->type == CONFIG_SWITCH ? "yes|no" : o->unit;
}

static void print_option(const struct config_option *o)
{
    print_roff(o->help);
    fputs(".\n", stdout);
    if (o->fallback[0] != '\0') {
        fputs("Default: \\fB", stdout);
        print_roff(o->fallback);
        fputs("\\fR.\n", stdout);
    }
}

/* ---- oinferd(8), oinferd.conf(5) ---- */

static void print_daemon_page(void)
{
    print_title("oinferd", "8", "inference daemon: serves GGUF models over HTTP on OpenCL devices");
    fputs(
        ".SH SYNOPSIS\n.B oinferd\n[\\fB\\-\\-config\\fR \\fIFILE\\fR] "
        "[\\fB\\-\\-model\\fR \\fIFILE\\fR ...] [\\fIoption\\fR ...]\n"
        ".SH DESCRIPTION\n"
        ".B oinferd\nloads the models that it is given, says so to the service manager, and "
        "answers "
        "OpenAI's completion API and operator runs\nuntil it is told to stop. Without a model "
        "only the operators are served.\n"
        "Options come from the defaults, the file of \\fB\\-\\-config\\fR, variables "
        "\\fBOINFER_\\fINAME\\fR (upper case, dashes as underscores)\nand the command line, later "
        "ones over earlier ones.\n.SH OPTIONS\n",
        stdout);
    static const char *const actions[][2] = {
        {"config FILE", "INI file with any of the options below; see \\fBoinferd.conf\\fR(5)."},
        {"check", "Read the configuration and the model files, say what is wrong, and stop."},
        {"print\\-defaults", "Print the default configuration file and stop."},
        {"version", "Print the version and stop."},
        {"help", "Print all options and stop."}};
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        printf(".TP\n.B \\-\\-%s\n%s\n", actions[i][0], actions[i][1]);
    for (uint32_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        fputs(".TP\n\\fB\\-\\-", stdout);
        print_roff(o->name);
        fputs("\\fR", stdout);
        if (o->type != CONFIG_SWITCH) {
            fputs(" \\fI", stdout);
            print_roff(o->unit);
            fputs("\\fR", stdout);
        }
        putchar('\n');
        print_option(o);
    }
    fputs(
        ".SH SIGNALS\n"
        ".TP\n.B SIGTERM, SIGINT\nRunning requests are finished for at most \\fBdrain\\-time\\fR, "
        "new "
        "ones refused; a second SIGINT ends at once.\n"
        ".TP\n.B SIGHUP\nThe configuration is read again. What can change while the daemon runs is "
        "taken over (see \\fBoinferd.conf\\fR(5)),\nwhat needs a restart is named in the log; with "
        "any problem everything stays as it was.\n"
        ".SH EXIT STATUS\n0: stopped as asked. 1: it could not serve, and says why. 2: the "
        "configuration is wrong.\n"
        ".SH FILES\n"
        ".TP\n.I /etc/oinfer/oinferd.conf\nconfiguration of the service\n"
        ".TP\n.I /var/lib/oinfer/models\nplace for model files\n"
        ".TP\n.I /var/cache/oinfer\ncompiled kernels and measurements; may be deleted at any time\n"
        ".SH SEE ALSO\n\\fBoinferd.conf\\fR(5), \\fBoinfer\\fR(1), \\fBsystemd.service\\fR(5)\n",
        stdout);
}

static void print_file_page(void)
{
    print_title("oinferd.conf", "5", "configuration of oinferd");
    fputs(".SH DESCRIPTION\n"
          "Lines \\fIname\\fR = \\fIvalue\\fR below headings [\\fIsection\\fR]; a line that begins "
          "with # "
          "or ; is a comment.\nSizes take B KiB MiB GiB, times ms s min h. A \\fBmodel\\fR line "
          "may be "
          "given several times.\nEvery problem is reported with its line, and a name that is not "
          "known "
          "with the nearest one.\n"
          "Options marked \\fI(reloaded)\\fR are taken over by SIGHUP, the others by a restart.\n",
          stdout);
    const char *section = "";
    for (uint32_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        if (strcmp(section, o->section) != 0)
            printf(".SH [%s]\n", o->section);
        section = o->section;
        fputs(".TP\n\\fB", stdout);
        print_roff(o->name);
        fputs("\\fR = \\fI", stdout);
        print_roff(value_of(o));
        printf("\\fR%s\n", o->live ? " \\fI(reloaded)\\fR" : "");
        print_option(o);
    }
    fputs(".SH SEE ALSO\n\\fBoinferd\\fR(8)\n", stdout);
}

/* ---- oinfer(1) ---- */

static char *read_text(const char *path)
{
    static char text[HELP_MAX_BYTES];
    FILE *file = fopen(path, "re");
    size_t n = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    if (n == 0 || n == sizeof text - 1) {
        fprintf(stderr, "docs: %s: is no text of 1 to %d bytes\n", path, HELP_MAX_BYTES - 2);
        exit(EXIT_FAILURE);
    }
    text[n] = '\0';
    return text;
}

static void print_help_text(const char *path)
{
    fputs(".nf\n", stdout);
    print_roff(read_text(path));
    fputs(".fi\n", stdout);
}

static void print_command_page(int argc, char **argv)
{
    print_title("oinfer", "1", "inspect, run and measure GGUF models on OpenCL devices");
    fputs(".SH SYNOPSIS\n.B oinfer\n\\fICOMMAND\\fR [\\fIarguments\\fR]\n.SH DESCRIPTION\nThe "
          "engine of "
          "\\fBoinferd\\fR(8) at the command line.\n",
          stdout);
    print_help_text(argv[2]);
    for (int i = 3; i < argc; i++) {
        char *file = strchr(argv[i], '=');
        *file++ = '\0';
        printf(".SH \"OINFER %s\"\n", argv[i]);
        print_help_text(file);
    }
    fputs(".SH SEE ALSO\n\\fBoinferd\\fR(8)\n", stdout);
}

/* ---- completion ---- */

static void print_daemon_completion(void)
{
    fputs("# bash completion of oinferd, made from its option table\n_oinferd() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n    "
          "COMPREPLY=()\n"
          "    case $prev in\n    --config) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n",
          stdout);
    for (uint32_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        if (o->type == CONFIG_PATH || o->type == CONFIG_LIST) {
            printf("    --%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", o->name);
        } else if (o->type == CONFIG_CHOICE) {
            printf("    --%s) COMPREPLY=($(compgen -W '", o->name);
            for (const char *p = o->unit; *p != '\0'; p++)
                putchar(*p == '|' ? ' ' : *p);
            fputs("' -- \"$cur\")); return ;;\n", stdout);
        } else if (o->type != CONFIG_SWITCH) {
            printf("    --%s) return ;;\n", o->name);
        }
    }
    fputs(
        "    esac\n    COMPREPLY=($(compgen -W '--config --check --print-defaults --version --help",
        stdout);
    for (uint32_t i = 0; i < config_option_count; i++)
        printf(" --%s", config_options[i].name);
    fputs("' -- \"$cur\"))\n}\ncomplete -o filenames -F _oinferd oinferd\n", stdout);
}

/* Prints the words of a help text that begin with --. */
static void print_flags(const char *path)
{
    const char *text = read_text(path);
    for (const char *p = text; (p = strstr(p, "--")) != NULL;) {
        size_t n = 2;
        while (isalnum((unsigned char)p[n]) || p[n] == '-')
            n++;
        bool begins_word =
            p == text || !isgraph((unsigned char)p[-1]) || strchr("[,", p[-1]) != NULL;
        if (n > 2 && n < FLAG_MAX_BYTES && begins_word)
            printf(" %.*s", (int)n, p);
        p += n;
    }
}

static void print_command_completion(int argc, char **argv)
{
    fputs(
        "# bash completion of oinfer, made from its help texts\n_oinfer() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} flags=\n    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W '--help --version",
        stdout);
    for (int i = 3; i < argc; i++)
        printf(" %.*s", (int)strcspn(argv[i], "="), argv[i]);
    fputs("' -- \"$cur\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n", stdout);
    for (int i = 3; i < argc; i++) {
        printf("    %.*s) flags='--help", (int)strcspn(argv[i], "="), argv[i]);
        print_flags(strchr(argv[i], '=') + 1);
        fputs("' ;;\n", stdout);
    }
    fputs(
        "    esac\n    case $cur in\n    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\")) ;;\n"
        "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n    esac\n}\n"
        "complete -o filenames -F _oinfer oinfer\n",
        stdout);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool has_help = argc > 3;
    for (int i = 3; i < argc; i++)
        has_help = has_help && strchr(argv[i], '=') != NULL;
    if (strcmp(what, "oinferd.8") == 0)
        print_daemon_page();
    else if (strcmp(what, "oinferd.conf.5") == 0)
        print_file_page();
    else if (strcmp(what, "oinferd.bash") == 0)
        print_daemon_completion();
    else if (strcmp(what, "oinfer.1") == 0 && has_help)
        print_command_page(argc, argv);
    else if (strcmp(what, "oinfer.bash") == 0 && has_help)
        print_command_completion(argc, argv);
    else {
        fprintf(stderr, "docs: what to write? the paragraph on top of docs.c says it\n");
        return EXIT_FAILURE;
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
