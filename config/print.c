/* Texts made from the option table: --help, --print-defaults, values for /props. No state. */
#include <stdio.h>
#include <string.h>

#include "config/value.h"

#define HELP_COLUMN 34

void config_print_value(const struct config *c, const struct config_option *option,
                        struct strbuf *out)
{
    value__print(c, option, out);
}

void config_print_defaults(struct strbuf *out)
{
    strbuf_puts(out,
                "# oinferd.conf: every option with its default. The environment (OINFER_NAME, "
                "dashes as\n# underscores) and the command line (--name) go over this file.\n");
    const char *section = "";
    for (uint32_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        if (strcmp(section, o->section) != 0) {
            section = o->section;
            strbuf_printf(out, "\n[%s]\n", section);
        }
        strbuf_printf(out, "# %s%s%s%s\n", o->help, o->unit[0] != '\0' ? " (" : "", o->unit,
                      o->unit[0] != '\0' ? ")" : "");
        strbuf_printf(out, "#%s =%s%s\n", o->name, o->fallback[0] != '\0' ? " " : "", o->fallback);
    }
}

static void print_flag(struct strbuf *out, const char *name, const char *unit, const char *help,
                       const char *fallback)
{
    char flag[128];
    snprintf(flag, sizeof flag, "  --%s%s%s", name, unit[0] != '\0' ? " " : "", unit);
    strbuf_puts(out, flag);
    if (strlen(flag) + 2 > HELP_COLUMN)
        strbuf_printf(out, "\n%*s", HELP_COLUMN, "");
    else
        strbuf_printf(out, "%*s", HELP_COLUMN - (int)strlen(flag), "");
    strbuf_puts(out, help);
    if (fallback[0] != '\0')
        strbuf_printf(out, " [%s]", fallback);
    strbuf_putc(out, '\n');
}

void config_print_help(const char *program, struct strbuf *out)
{
    strbuf_printf(out,
                  "usage: %s [--config FILE] [--model FILE ...] [option ...]\n"
                  "Serves GGUF models over HTTP on OpenCL devices.\n\n",
                  program);
    print_flag(out, "config", "FILE", "INI file with any of the options below", "");
    print_flag(out, "check", "", "read the configuration, say what is wrong with it, and stop", "");
    print_flag(out, "print-defaults", "", "print the default configuration file and stop", "");
    print_flag(out, "version", "", "print the version and stop", "");
    print_flag(out, "help", "", "print this and stop", "");
    const char *section = "";
    for (uint32_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        if (strcmp(section, o->section) != 0) {
            section = o->section;
            strbuf_printf(out, "\n%s:\n", section);
        }
        print_flag(out, o->name, o->unit, o->help, o->fallback);
    }
    strbuf_puts(out, "\nEach option is also a line of the file and a variable OINFER_NAME; the "
                     "command line wins over\nthe environment, the environment over the file.\n");
}
