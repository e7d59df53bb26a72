package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/runtime/command"
)

func newPasswdCommand() *cobra.Command {
	random := ""
	cmd := &cobra.Command{
		Use: "passwd", Short: "Print the hash of a password for the configuration",
		Long: "Reads a password from standard input, where other users cannot see it, and prints its bcrypt hash.\n" +
			"With --random it makes a password, whose hash the broker checks in microseconds: a thousand agents\n" +
			"log in within a second, where bcrypt takes half a minute.",
		Example: "  work-broker passwd <password.txt >hub1.passwd\n" +
			"  work-broker passwd --random=cluster1.password >cluster1.passwd",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errors.New("passwd takes no arguments: it reads the password from standard input, where other users cannot see it")
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hash, err := hashOf(random, command.Input(cmd.Context(), cmd.InOrStdin()))
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), hash)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&random, "random", random, "make a random password and write it to this new file, in place of reading one")
	return cmd
}

// hashOf returns the hash of the password in stdin, or of a random one that it writes to the file
// random.
func hashOf(random string, stdin io.Reader) (string, error) {
	if random == "" {
		password, err := readPassword(stdin)
		if err != nil {
			return "", err
		}
		return broker.HashPassword(password)
	}
	password, hash, err := broker.RandomPassword()
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(random, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("write the password: %w", err)
	}
	_, err = fmt.Fprintln(file, password)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("write the password: %w", err)
	}
	return hash, nil
}

// readPassword returns the only line of r.
func readPassword(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, 4096))
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	line, rest, _ := strings.Cut(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	if rest != "" {
		return "", errors.New("read the password: it has more than one line")
	}
	return line, nil
}
