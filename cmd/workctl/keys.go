package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/command"
	"github.com/workwire/workwire/pkg/signing"
	"github.com/workwire/workwire/pkg/wire"
)

func keysCommand(stdout io.Writer) *cobra.Command {
	keys := group("keys", "Make and list the keys that sources sign their events with")
	keys.AddCommand(newKeyCommand(stdout), publicCommand(stdout), listKeysCommand(stdout))
	return keys
}

func newKeyCommand(stdout io.Writer) *cobra.Command {
	var path string
	return command.New(command.Config{
		Use:   "new --key=FILE",
		Short: "Make a key to sign with",
		Long: "Makes an Ed25519 key for --signing-key of work-hub, as PEM (PKCS #8) with mode 0600. It fails if the file\n" +
			"exists. See docs/signing.md.",
		Sections: []command.Section{{Title: "Key", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&path, "key", "", "file to write the private key to; required")
		}}},
		Validate: func() []error { return required(flag{"key", path}) },
		Run: func(context.Context) error {
			key, err := signing.NewKey()
			if err != nil {
				return err
			}
			data, err := key.PEM()
			if err != nil {
				return err
			}
			if err := create(path, data); err != nil {
				return fmt.Errorf("write the key: %w", err)
			}
			_, err = fmt.Fprintf(stdout, "%s: key %s\nnext: workctl keys public --key=%s --source=SOURCE\n", path, key.Public().ID, path)
			return err
		},
	})
}

// create writes a file that only its owner can read, and that must not exist. A file that is not
// whole is removed.
func create(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func publicCommand(stdout io.Writer) *cobra.Command {
	var (
		paths   []string
		sources []string
	)
	return command.New(command.Config{
		Use:   "public --key=FILE --source=SOURCE",
		Short: "Print public keys as a file of keys that agents trust",
		Long: "Prints a file for --trusted-keys of work-agent with the public keys of one or more private keys. While a key is\n" +
			"being replaced, agents trust the old one and the new one. See docs/signing.md.",
		Sections: []command.Section{{Title: "Key", Bind: func(fs *pflag.FlagSet) {
			fs.StringSliceVar(&paths, "key", nil, "files with private keys, comma-separated; required")
			fs.StringSliceVar(&sources, "source", nil, "source ids that the keys may sign for, comma-separated; required")
		}}},
		Validate: func() []error {
			return required(flag{"key", strings.Join(paths, "")}, flag{"source", strings.Join(sources, "")})
		},
		Run: func(context.Context) error {
			var trusted []signing.TrustedKey
			for _, path := range paths {
				key, err := readKey(path)
				if err != nil {
					return err
				}
				trusted = append(trusted, signing.TrustedKey{PublicKey: key.Public(), Sources: sourceIDs(sources)})
			}
			text, err := signing.FormatTrustedKeys(trusted...)
			if err == nil {
				_, err = signing.ParseTrustedKeys(text) // a source id may be invalid
			}
			if err != nil {
				return err
			}
			_, err = stdout.Write(text)
			return err
		},
	})
}

func readKey(path string) (*signing.Key, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := signing.ParseKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

func sourceIDs(names []string) (ids []wire.SourceID) {
	for _, name := range names {
		ids = append(ids, wire.SourceID(name))
	}
	return ids
}

func listKeysCommand(stdout io.Writer) *cobra.Command {
	var path, trustedPath string
	return command.New(command.Config{
		Use:   "list [--trusted-keys=FILE] [--key=FILE]",
		Short: "List keys with their ids and sources",
		Long:  "Lists the keys of a file of trusted keys, of a private key, or of both. It fails if a file is not valid.",
		Sections: []command.Section{{Title: "Files", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&trustedPath, "trusted-keys", "", "file of trusted keys")
			fs.StringVar(&path, "key", "", "file with a private key")
		}}},
		Validate: func() []error {
			if path == "" && trustedPath == "" {
				return []error{errors.New("--trusted-keys or --key is required")}
			}
			return nil
		},
		Run: func(context.Context) error {
			table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "ID\tFILE\tSOURCES")
			if path != "" {
				key, err := readKey(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(table, "%s\t%s\t(signs)\n", key.Public().ID, filepath.Base(path))
			}
			if err := listTrusted(table, trustedPath); err != nil {
				return err
			}
			return table.Flush()
		},
	})
}

// listTrusted prints a line for each key in a file of trusted keys; none if path is empty.
func listTrusted(w io.Writer, path string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	keys, err := signing.ParseTrustedKeys(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, key := range keys {
		names := make([]string, len(key.Sources))
		for i, source := range key.Sources {
			names[i] = string(source)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", key.ID, filepath.Base(path), strings.Join(names, ","))
	}
	return nil
}
