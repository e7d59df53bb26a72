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
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/certificates"
)

// files are the flags that all certs commands have.
type files struct {
	config, dir, owner string
}

// add adds the flags to cmd, that of the owner if the command writes files.
func (f *files) add(cmd *cobra.Command, writes bool) {
	fs := cmd.Flags()
	fs.StringVar(&f.config, "config", "", "YAML file that lists the certificates, see docs/certificates.md; required")
	fs.StringVar(&f.dir, "dir", "", "base of the relative directories in --config (default: the directory of that file)")
	if writes {
		fs.StringVar(&f.owner, "owner", "", "owner of the certificates' files as numeric UID:GID (default: the owner of their directory). The authority's files belong to this process")
	}
}

// validate returns an error with all faults of the flags; others are those of the command's own.
func (f *files) validate(cmd *cobra.Command, others ...error) error {
	var config error
	if f.config == "" {
		config = errors.New("--config is required: the YAML file that lists the certificates")
	}
	_, owner := parseOwner(f.owner)
	return invalid(cmd, append([]error{config, owner}, others...)...)
}

// parseOwner parses UID:GID. It returns nil for "".
func parseOwner(text string) (*certificates.Owner, error) {
	if text == "" {
		return nil, nil
	}
	user, group, _ := strings.Cut(text, ":")
	uid, userErr := strconv.ParseUint(user, 10, 31)
	gid, groupErr := strconv.ParseUint(group, 10, 31)
	if userErr != nil || groupErr != nil {
		return nil, fmt.Errorf("--owner %q must be numeric UID:GID, such as 65532:65532", text)
	}
	return &certificates.Owner{UID: int(uid), GID: int(gid)}, nil
}

// manager returns a manager for the configuration file, after it has validated the flags.
func (f *files) manager(cmd *cobra.Command, others ...error) (*certificates.Manager, error) {
	if err := f.validate(cmd, others...); err != nil {
		return nil, err
	}
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

func ensureCommand(stdout, stderr io.Writer) *cobra.Command {
	var (
		f     files
		renew []string
		every time.Duration
	)
	once := func(cmd *cobra.Command) error {
		manager, err := f.manager(cmd)
		if err != nil {
			return err
		}
		report, err := manager.Ensure(renew...)
		printReport(stdout, stderr, report)
		return err
	}
	cmd := leaf(&cobra.Command{
		Use:   "ensure --config=FILE",
		Short: "Issue missing certificates and renew those that are due",
		Long: "Issues the certificates that are missing. Renews those past two thirds of their lifetime, those that\n" +
			"are revoked, and those whose entry in --config has changed. Keeps all others.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var errs []error
			if every < 0 || every > 0 && every < time.Second {
				errs = append(errs, fmt.Errorf("--every must be at least 1s, or 0 to run once, got %s", every))
			}
			if every > 0 && len(renew) > 0 {
				errs = append(errs, errors.New("--renew and --every exclude each other: the certificates would be renewed at every interval"))
			}
			if err := f.validate(cmd, errs...); err != nil {
				return err
			}
			if every == 0 {
				return once(cmd)
			}
			wait.NonSlidingUntilWithContext(cmd.Context(), func(context.Context) {
				if err := once(cmd); err != nil {
					_, _ = fmt.Fprintln(stderr, "error:", err)
				}
			}, every)
			return nil
		},
	})
	f.add(cmd, true)
	cmd.Flags().StringSliceVar(&renew, "renew", nil, "names of certificates to renew even if they are not due, or all")
	cmd.Flags().DurationVar(&every, "every", 0, "repeat at this interval, at least 1s, such as 12h; 0 runs once")
	return cmd
}

// printReport prints the changes, one on a line, and the number of kept certificates.
func printReport(stdout, stderr io.Writer, report certificates.Report) {
	printLine := func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) }
	if report.Authority != "" {
		printLine("authority: %s", report.Authority)
	}
	kept := 0
	for _, o := range report.Outcomes {
		switch {
		case o.RenewalReason != "":
			printLine("%s: issued until %s (%s)", o.Name, formatTime(o.NotAfter), o.RenewalReason)
		case o.Updated:
			printLine("%s: kept, trusted authorities updated", o.Name)
		default:
			kept++
		}
	}
	if kept > 0 {
		printLine("%s unchanged", cli.Plural(kept, "certificate", "certificates"))
	}
	for _, w := range report.Warnings {
		_, _ = fmt.Fprintln(stderr, "warning:", w)
	}
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

func showCommand(stdout io.Writer) *cobra.Command {
	var f files
	var format cli.FormatFlag
	cmd := leaf(&cobra.Command{
		Use:   "show --config=FILE",
		Short: "Show the status of the certificates",
		Long:  "Shows the trusted authorities and the status of every certificate in --config. It changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			manager, err := f.manager(cmd)
			if err != nil {
				return err
			}
			status, err := manager.Status()
			if err != nil {
				return err
			}
			return writeStatus(stdout, format.Format(), status)
		},
	})
	f.add(cmd, false)
	format.Add(cmd, cli.Table, cli.JSON, cli.YAML, cli.JSONPath, cli.Name)
	return cmd
}

// shownAuthority and shownCertificate are those of -o json.
type (
	shownAuthority struct {
		Name     string    `json:"name"`
		Place    string    `json:"place"` // current, next or former
		NotAfter time.Time `json:"notAfter"`
		Revoked  int       `json:"revoked"`
	}
	shownCertificate struct {
		Name     string    `json:"name"`
		Role     string    `json:"role"`
		Hosts    []string  `json:"hosts,omitempty"`
		Issuer   string    `json:"issuer,omitempty"`
		NotAfter time.Time `json:"notAfter,omitzero"`
		Due      string    `json:"due,omitempty"` // why it is to be renewed; empty if it is good
	}
)

func writeStatus(stdout io.Writer, format cli.Format, status certificates.Status) error {
	switch format {
	case cli.Table:
		return printStatus(stdout, status)
	case cli.Name:
		for _, c := range status.Certificates {
			if _, err := fmt.Fprintln(stdout, c.Name); err != nil {
				return err
			}
		}
		return nil
	}
	authorities, certificates := []shownAuthority{}, []shownCertificate{}
	for _, a := range status.Authorities {
		authorities = append(authorities, shownAuthority{a.Name, a.Place, a.NotAfter, a.Revoked})
	}
	for _, c := range status.Certificates {
		certificates = append(certificates, shownCertificate{c.Name, string(c.Role), c.Hosts, c.Issuer, c.NotAfter, c.RenewalReason})
	}
	return cli.WriteJSON(stdout, format, map[string]any{"authorities": authorities, "certificates": certificates})
}

func printStatus(stdout io.Writer, status certificates.Status) error {
	for _, a := range status.Authorities {
		if _, err := fmt.Fprintf(stdout, "authority %s (%s), valid until %s, %d revoked\n", a.Name, a.Place, formatTime(a.NotAfter), a.Revoked); err != nil {
			return err
		}
	}
	table := cli.Rows{Header: []string{"NAME", "ROLE", "HOSTS", "ISSUER", "NOT AFTER", "STATE"}}
	for _, c := range status.Certificates {
		notAfter, state := "", "good"
		if !c.NotAfter.IsZero() {
			notAfter = formatTime(c.NotAfter)
		}
		if c.RenewalReason != "" {
			state = "due: " + c.RenewalReason
		}
		table.Add(c.Name, string(c.Role), strings.Join(c.Hosts, ","), c.Issuer, notAfter, state)
	}
	return table.Write(stdout, cli.Style{}, 0)
}

func secretCommand(stdout io.Writer) *cobra.Command {
	var (
		f                           files
		name, namespace, secretName string
	)
	cmd := leaf(&cobra.Command{
		Use:   "secret --config=FILE --name=NAME --namespace=NAMESPACE",
		Short: "Print a certificate as a Secret for kubectl apply",
		Long: "Prints a certificate, its key and the trusted authorities as a Secret of type kubernetes.io/tls:\n" +
			"  workctl certs secret --config=FILE --name=cluster1 --namespace=workwire | kubectl apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			manager, err := f.manager(cmd, required(flag{"name", name}, flag{"namespace", namespace})...)
			if err != nil {
				return err
			}
			text, err := manager.Secret(name, namespace, secretName)
			if err != nil {
				return err
			}
			_, err = stdout.Write(text)
			return err
		},
	})
	f.add(cmd, false)
	cmd.Flags().StringVar(&name, "name", "", "name of the certificate in --config; required")
	cmd.Flags().StringVar(&namespace, "namespace", "", "namespace of the Secret; required")
	cmd.Flags().StringVar(&secretName, "secret-name", "", "name of the Secret (default: the name of the certificate)")
	return cmd
}

type flag struct{ name, value string }

// required returns an error for each empty flag.
func required(flags ...flag) []error {
	var errs []error
	for _, f := range flags {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s is required", f.name))
		}
	}
	return errs
}

// nextActions are the actions that an operator takes after each step.
var nextActions = map[certificates.Step]string{
	certificates.Trust: "next: distribute ca.crt to all users and ca.crl to brokers; when all have them, continue with --step=issue",
	certificates.Issue: "next: distribute all certificates to their users; when all have them, continue with --step=drop",
	certificates.Drop:  "next: distribute ca.crt to all users, and what was issued to its users; after that, no user accepts the previous authority",
}

func rotateCommand(o *cli.Options) *cobra.Command {
	var (
		f     files
		step  string
		force bool
	)
	cmd := leaf(&cobra.Command{
		Use:   "rotate-authority --config=FILE --step=trust|issue|drop",
		Short: "Replace the authority in three steps without an outage",
		Long: "Replaces the authority in three steps. A step may be repeated. Before the next step, distribute the\n" +
			"written files to all their users:\n" +
			"  trust   create the next authority, and trust it besides the current one\n" +
			"  issue   make the next authority the current one, and issue all certificates again\n" +
			"  drop    no longer trust the previous authority\n" +
			"With --context or --kubeconfig of a hub, it says which clusters that joined with a token have not renewed\n" +
			"their certificate yet; they do so by themselves. Repeat the step issue to see how far they are.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var invalidStep error
			if nextActions[certificates.Step(step)] == "" {
				invalidStep = fmt.Errorf("--step must be trust, issue or drop, got %q", step)
			}
			manager, err := f.manager(cmd, invalidStep)
			if err != nil {
				return err
			}
			if certificates.Step(step) == certificates.Drop && !force {
				behind, err := tellBehind(cmd.Context(), o, manager, io.Discard)
				if err != nil {
					return err
				}
				if behind > 0 {
					return cli.Errorf("%s", cli.Plural(behind, "cluster has not renewed its certificate", "clusters have not renewed their certificates")).
						Do("repeat --step=issue to see which; or drop with --force: such a cluster is disconnected until it has renewed")
				}
			}
			report, err := manager.Rotate(certificates.Step(step))
			if report.Authority == "" && err == nil {
				report.Authority = "unchanged, the step was taken before"
			}
			printReport(o.Out, o.Err, report)
			if err == nil {
				_, err = tellBehind(cmd.Context(), o, manager, o.Out)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(o.Out, nextActions[certificates.Step(step)])
			return err
		},
	})
	f.add(cmd, true)
	cmd.Flags().StringVar(&step, "step", "", "trust, issue or drop, in this order; required")
	cmd.Flags().BoolVar(&force, "force", false, "drop the previous authority although clusters have not renewed their certificate; they are disconnected until they have")
	return cmd
}

// tellBehind prints which clusters of the hub that --kubeconfig or --context names have not renewed their certificate, and returns their
// number: 0 if none is named.
func tellBehind(ctx context.Context, o *cli.Options, manager *certificates.Manager, out io.Writer) (int, error) {
	if o.Kubeconfig == "" && o.Context == "" {
		return 0, nil
	}
	status, err := manager.Status()
	if err != nil {
		return 0, err
	}
	reader, err := hub(o)
	if err != nil {
		return 0, err
	}
	behind, all, err := join.Behind(ctx, reader.Clients, status.Authorities[0].KeyID, time.Now()) // the current one is first
	if err != nil {
		return 0, cli.APIError("list the clusters", err)
	}
	_, err = fmt.Fprintf(out, "%s has certified %d of %s that joined with a token\n", status.Authorities[0].Name, all-len(behind), cli.Plural(all, "cluster", "clusters"))
	if err == nil && len(behind) > 0 {
		_, err = fmt.Fprintf(out, "not yet: %s\n", strings.Join(behind, ", "))
	}
	return len(behind), err
}

func revokeCommand(stdout io.Writer) *cobra.Command {
	var (
		f    files
		name string
	)
	cmd := leaf(&cobra.Command{
		Use:   "revoke --config=FILE --name=NAME",
		Short: "Revoke the certificates that were issued to a name",
		Long: "Adds all certificates that were issued to a name and have not expired to the revocation list of the\n" +
			"brokers, ca.crl. The name need not be in --config anymore.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			manager, err := f.manager(cmd, required(flag{"name", name})...)
			if err != nil {
				return err
			}
			count, err := manager.Revoke(name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "%s: %s revoked\nnext: distribute ca.crl to the brokers; "+
				"`workctl certs ensure` issues a new certificate if %s is still in --config\n", name, cli.Plural(count, "certificate", "certificates"), name)
			return err
		},
	})
	f.add(cmd, true)
	cmd.Flags().StringVar(&name, "name", "", "name of the certificate; required")
	return cmd
}
