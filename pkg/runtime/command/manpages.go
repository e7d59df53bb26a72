//go:build manpages

package command

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/workwire/workwire/pkg/runtime/version"
)

// Main writes a man page for root and for each of its subcommands into the directory that is the first
// argument, in place of running root. The date of the pages is $SOURCE_DATE_EPOCH. It returns the exit code.
// hack/man.sh builds programs with the tag manpages for this, so that the product does not contain it.
func Main(root *cobra.Command) int {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "%s: built with the tag manpages: want one argument, the directory to write man pages to\n", root.Name())
		return 2
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	prepare(root)
	err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{
		Header: &doc.GenManHeader{Section: "1", Source: "Workwire " + version.Version, Manual: "Workwire"},
		Path:   os.Args[1], CommandSeparator: "-",
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: write man pages to %s: %v\n", root.Name(), os.Args[1], err)
		return 1
	}
	return 0
}

// prepare makes of the descriptions of cmd and its subcommands the Markdown that package doc expects.
func prepare(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	cmd.Long = markdown(cmd.Long)
	for _, sub := range cmd.Commands() {
		prepare(sub)
	}
}

// markdown returns text with its indented lines, which are tables and commands, as code.
func markdown(text string) string {
	var out []string
	code := false
	for line := range strings.SplitSeq(text, "\n") {
		if indented := strings.HasPrefix(line, "  "); indented != code && line != "" {
			code = indented
			out = append(out, "")
		}
		if code {
			line = "    " + line
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
