package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/certificates"
	"github.com/workwire/workwire/pkg/command"
)

// files are the flags that every command about certificates has.
type files struct {
	config, dir, owner string
}

func (f *files) section() command.Section {
	return command.Section{Title: "Files", Bind: func(fs *pflag.FlagSet) {
		fs.StringVar(&f.config, "config", f.config, "file that lists the certificates, in YAML; docs/certificates.md has an example; required")
		fs.StringVar(&f.dir, "dir", f.dir, "what relative directories in it are relative to; default: the file's own directory")
	}}
}

// writing is section, for commands that write.
func (f *files) writing() command.Section {
	read := f.section()
	return command.Section{Title: read.Title, Bind: func(fs *pflag.FlagSet) {
		read.Bind(fs)
		fs.StringVar(&f.owner, "owner", f.owner, "UID:GID, in numbers, that the certificates' files shall belong to; default: who owns their directory. The authority's files stay with this process")
	}}
}

func (f *files) validate() []error {
	var faults []error
	if f.config == "" {
		faults = append(faults, errors.New("--config is required: the file that lists the certificates"))
	}
	if _, err := parseOwner(f.owner); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// parseOwner reads UID:GID; it gives nil for "".
func parseOwner(text string) (*certificates.Owner, error) {
	if text == "" {
		return nil, nil
	}
	user, group, _ := strings.Cut(text, ":")
	uid, userErr := strconv.ParseUint(user, 10, 31)
	gid, groupErr := strconv.ParseUint(group, 10, 31)
	if userErr != nil || groupErr != nil {
		return nil, fmt.Errorf("--owner %q is not UID:GID in numbers, such as 65532:65532", text)
	}
	return &certificates.Owner{UID: int(uid), GID: int(gid)}, nil
}

// manager reads the configuration, which may have changed since it was read last.
func (f *files) manager() (*certificates.Manager, error) {
	config, err := certificates.Load(f.config)
	if err != nil {
		return nil, err
	}
	owner, err := parseOwner(f.owner)
	if err != nil {
		return nil, err
	}
	return certificates.New(certificates.ManagerConfig{
		Config: config, Dir: cmp.Or(f.dir, filepath.Dir(f.config)), Owner: owner,
	})
}

func ensureCommand(out, complaints io.Writer) *cobra.Command {
	var (
		f     files
		renew []string
		every time.Duration
	)
	once := func() error {
		manager, err := f.manager()
		if err != nil {
			return err
		}
		report, err := manager.Ensure(renew...)
		printReport(out, complaints, report)
		return err
	}
	return command.New(command.Config{
		Use:   "ensure --config=FILE",
		Short: "Issue the certificates that are missing, renew those that are due",
		Long: "Issues the certificates that are missing and renews those past two thirds of their life, those that were\n" +
			"revoked, and those of which the list says something else now. All others stay as they are.",
		Sections: []command.Section{f.writing(), {Title: "What to do", Bind: func(fs *pflag.FlagSet) {
			fs.StringSliceVar(&renew, "renew", nil, "names of certificates to renew in any case, or all")
			fs.DurationVar(&every, "every", 0, "go on, and do it again at this interval, such as 12h; 0: do it once")
		}}},
		Validate: func() []error {
			faults := f.validate()
			if every < 0 || every > 0 && every < time.Second {
				faults = append(faults, fmt.Errorf("--every %s: use 1s or more, or 0 for once", every))
			}
			if every > 0 && len(renew) > 0 {
				faults = append(faults, errors.New("--renew with --every would renew again and again: use one of them"))
			}
			return faults
		},
		Run: func(ctx context.Context) error {
			if every == 0 {
				return once()
			}
			ticker := time.NewTicker(every)
			defer ticker.Stop()
			for {
				if err := once(); err != nil {
					_, _ = fmt.Fprintln(complaints, "error:", err)
				}
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return nil
				}
			}
		},
	})
}

// printReport tells what was done, a line each, and what was not.
func printReport(out, complaints io.Writer, report certificates.Report) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	if report.Authority != "" {
		say("authority: %s", report.Authority)
	}
	kept := 0
	for _, o := range report.Outcomes {
		switch {
		case o.Renewed != "":
			say("%s: issued until %s (%s)", o.Name, day(o.NotAfter), o.Renewed)
		case o.Updated:
			say("%s: kept; the authorities to trust have changed", o.Name)
		default:
			kept++
		}
	}
	if kept > 0 {
		say("%d certificates are as they should be", kept)
	}
	for _, w := range report.Warnings {
		_, _ = fmt.Fprintln(complaints, "warning:", w)
	}
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

func showCommand(out io.Writer) *cobra.Command {
	var f files
	return command.New(command.Config{
		Use:      "show --config=FILE",
		Short:    "Show the certificates and how they are",
		Long:     "Shows the authorities that are trusted, and every certificate of the list. It changes nothing.",
		Sections: []command.Section{f.section()},
		Validate: f.validate,
		Run: func(context.Context) error {
			manager, err := f.manager()
			if err != nil {
				return err
			}
			state, err := manager.Status()
			if err != nil {
				return err
			}
			return printStatus(out, state)
		},
	})
}

func printStatus(out io.Writer, state certificates.Status) error {
	for _, a := range state.Authorities {
		if _, err := fmt.Fprintf(out, "authority %s %s; until %s; %d revoked\n", a.Name, a.Place, day(a.NotAfter), a.Revoked); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "NAME\tROLE\tHOSTS\tISSUER\tNOT AFTER\tSTATE") // Flush reports errors
	for _, c := range state.Certificates {
		until, what := "-", "good"
		if !c.NotAfter.IsZero() {
			until = day(c.NotAfter)
		}
		if c.Due != "" {
			what = "due: " + c.Due
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, c.Role,
			cmp.Or(strings.Join(c.Hosts, ","), "-"), cmp.Or(c.Issuer, "-"), until, what)
	}
	return table.Flush()
}

func secretCommand(out io.Writer) *cobra.Command {
	var (
		f                           files
		name, namespace, secretName string
	)
	return command.New(command.Config{
		Use:   "secret --config=FILE --name=NAME --namespace=NAMESPACE",
		Short: "Print a certificate as a Secret, for kubectl apply",
		Long: "Prints a certificate, its key and the authorities to trust as a Secret of type kubernetes.io/tls:\n" +
			"  workctl certs secret --config=FILE --name=cluster1 --namespace=workwire | kubectl apply -f -",
		Sections: []command.Section{f.section(), {Title: "Secret", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&name, "name", "", "name of the certificate in the list; required")
			fs.StringVar(&namespace, "namespace", "", "namespace of the Secret; required")
			fs.StringVar(&secretName, "secret-name", "", "name of the Secret; default: that of the certificate")
		}}},
		Validate: func() []error {
			return append(f.validate(), required(flag{"name", name}, flag{"namespace", namespace})...)
		},
		Run: func(context.Context) error {
			manager, err := f.manager()
			if err != nil {
				return err
			}
			text, err := manager.Secret(name, namespace, secretName)
			if err != nil {
				return err
			}
			_, err = out.Write(text)
			return err
		},
	})
}

type flag struct{ name, value string }

// required complains about the flags that are empty.
func required(flags ...flag) []error {
	var faults []error
	for _, f := range flags {
		if f.value == "" {
			faults = append(faults, fmt.Errorf("--%s is required", f.name))
		}
	}
	return faults
}

// afterStep says what an operator has to do after each step.
var afterStep = map[certificates.Step]string{
	certificates.Trust: "next: bring ca.crt (to brokers ca.crl too) to all who use it; when all have it, go on with --step=issue",
	certificates.Issue: "next: bring all certificates to those who use them; when all have theirs, go on with --step=drop",
	certificates.Drop:  "next: bring ca.crt to all who use it; then the former authority is accepted nowhere",
}

func rotateCommand(out, complaints io.Writer) *cobra.Command {
	var (
		f    files
		step string
	)
	return command.New(command.Config{
		Use:   "rotate-authority --config=FILE --step=trust|issue|drop",
		Short: "Replace the authority, in three steps, without an outage",
		Long: "Replaces the authority in three steps. A step may be repeated. Between two steps, what was written must\n" +
			"have reached everybody:\n" +
			"  trust   makes the next authority; everybody is to trust it as well\n" +
			"  issue   the next authority takes over, and every certificate is issued anew\n" +
			"  drop    nobody is to trust the former authority any more",
		Sections: []command.Section{f.writing(), {Title: "What to do", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&step, "step", "", "trust, issue or drop; required")
		}}},
		Validate: func() []error {
			faults := f.validate()
			if afterStep[certificates.Step(step)] == "" {
				faults = append(faults, fmt.Errorf("--step %q: use trust, issue or drop, in this order", step))
			}
			return faults
		},
		Run: func(context.Context) error {
			manager, err := f.manager()
			if err != nil {
				return err
			}
			report, err := manager.Rotate(certificates.Step(step))
			if report.Authority == "" && err == nil {
				report.Authority = "nothing to do, the step was taken before"
			}
			printReport(out, complaints, report)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(out, afterStep[certificates.Step(step)])
			return err
		},
	})
}

func revokeCommand(out io.Writer) *cobra.Command {
	var (
		f    files
		name string
	)
	return command.New(command.Config{
		Use:   "revoke --config=FILE --name=NAME",
		Short: "Revoke the certificates that were issued to a name",
		Long: "Puts every certificate that was issued to the name, and has not expired, on the revocation list of the\n" +
			"brokers (ca.crl). The name may have been removed from the list of certificates.",
		Sections: []command.Section{f.writing(), {Title: "What to do", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&name, "name", "", "name of the certificate; required")
		}}},
		Validate: func() []error { return append(f.validate(), required(flag{"name", name})...) },
		Run: func(context.Context) error {
			manager, err := f.manager()
			if err != nil {
				return err
			}
			count, err := manager.Revoke(name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "%s: %d certificates revoked\nnext: bring ca.crl to the brokers; "+
				"`workctl certs ensure` issues a new certificate if %s is still in the list\n", name, count, name)
			return err
		},
	})
}
