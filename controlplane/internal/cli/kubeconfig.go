package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/controlplane/internal/credentials"
	"github.com/workwire/workwire/controlplane/internal/plane"
)

func newKubeconfig() *cobra.Command {
	var dir, user, server, output string
	var groups []string
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "kubeconfig --dir=DIR --user=USER",
		Short: "Issue a kubeconfig for another user of a control plane",
		Long: `kubeconfig issues a client certificate for a user of the control plane in DIR and
prints a kubeconfig with it. RBAC authorizes the user. The control plane need not
run, but must have been started once; the kubeconfig has its last port. A
certificate cannot be revoked.`,
		Example: `  controlplane kubeconfig --dir=/tmp/hub --user=jane --group=developers --output=jane.kubeconfig`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := issue(dir, user, server, groups, lifetime)
			if err != nil {
				return err
			}
			if output != "" {
				return credentials.WriteFile(output, data, 0o600)
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "", "directory of the control plane; required")
	flags.StringVar(&user, "user", "", "user name; required")
	flags.StringArrayVar(&groups, "group", nil, "group of the user; may be repeated")
	flags.StringVar(&server, "server", "", "URL of the API server for the user, https://NAME:PORT, where NAME is a --hostname of up (default: 127.0.0.1 with the last port)")
	flags.DurationVar(&lifetime, "lifetime", credentials.Lifetime, "validity of the certificate")
	flags.StringVarP(&output, "output", "o", "", "file to write with mode 0600 (default: standard output)")
	return cmd
}

func issue(dir, user, server string, groups []string, lifetime time.Duration) ([]byte, error) {
	if dir == "" || user == "" {
		return nil, errors.New("--dir and --user are required")
	}
	if lifetime <= 0 {
		return nil, fmt.Errorf("--lifetime=%s must be positive", lifetime)
	}
	state, err := plane.ReadState(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--dir=%s holds no control plane; start one there with controlplane up", dir)
	}
	if err != nil {
		return nil, err
	}
	ca, err := credentials.ReadAuthority(plane.PKI(dir))
	if err != nil {
		return nil, err
	}
	cert, err := ca.IssueClient(user, groups, lifetime)
	if err != nil {
		return nil, err
	}
	return credentials.Kubeconfig(credentials.Access{
		Context: state.Name, User: user, Server: cmp.Or(server, state.Server()), CA: ca.CertPEM(), Client: cert,
	})
}
