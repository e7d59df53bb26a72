package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

func keysCommand(stdout io.Writer) *cobra.Command {
	keys := group("keys", "Make and list keys: those that sources sign with, and those that open what is sealed to a cluster")
	keys.AddCommand(newKeyCommand(stdout), publicCommand(stdout), listKeysCommand(stdout))
	return keys
}

func newKeyCommand(stdout io.Writer) *cobra.Command {
	var path, kind string
	cmd := leaf(&cobra.Command{
		Use:     "new --key=FILE [--type=sign|seal]",
		Aliases: []string{"generate"},
		Short:   "Make a private key",
		Long: "Makes a private key, as PEM with mode 0600. It fails if the file exists.\n\n" +
			"  sign  an Ed25519 key for --signing-key of work-hub or work-agent, see docs/signing.md\n" +
			"  seal  an MLKEM768-X25519 key for --unseal-key of work-agent, see docs/sealing.md",
		Example: "  workctl keys new --key=signing.key\n  workctl keys new --key=unseal.key --type=seal",
		RunE: func(cmd *cobra.Command, _ []string) error {
			errs := required(flag{"key", path})
			if kind != typeSign && kind != typeSeal {
				errs = append(errs, fmt.Errorf("--type must be %s or %s, got %q", typeSign, typeSeal, kind))
			}
			if err := invalid(cmd, errs...); err != nil {
				return err
			}
			data, id, err := makeKey(kind)
			if err != nil {
				return err
			}
			if err := create(path, data); err != nil {
				return fmt.Errorf("write the key: %w", err)
			}
			next := " --source=SOURCE, or --cluster=CLUSTER for the key of an agent"
			if kind == typeSeal {
				next = " > seal-keys/CLUSTER.pub"
			}
			_, err = fmt.Fprintf(stdout, "%s: key %s\nnext: workctl keys public --key=%s%s\n", path, id, path, next)
			return err
		},
	})
	cmd.Flags().StringVar(&path, "key", "", "file to write the private key to; required")
	cmd.Flags().StringVar(&kind, "type", typeSign, "sign or seal: what the key is for")
	return cmd
}

// The types of keys.
const (
	typeSign = "sign"
	typeSeal = "seal"
)

// makeKey returns a new private key as PEM, and its id.
func makeKey(kind string) (data []byte, id string, err error) {
	if kind == typeSeal {
		key, err := sealing.NewKey()
		if err != nil {
			return nil, "", err
		}
		data, err = key.PEM()
		return data, key.Public().ID, err
	}
	key, err := signing.NewKey()
	if err != nil {
		return nil, "", err
	}
	data, err = key.PEM()
	return data, key.Public().ID, err
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
		paths    []string
		sources  []string
		clusters []string
	)
	cmd := leaf(&cobra.Command{
		Use:   "public --key=FILE [--source=SOURCE|--cluster=CLUSTER]",
		Short: "Print the public half of keys",
		Long: "Of keys to sign with, prints a file for --trusted-keys of work-agent; it can have several. While a key is\n" +
			"being replaced, agents trust the old one and the new one. With --cluster, prints a file for --trusted-agents of\n" +
			"work-hub: add its entry to those of the other clusters. See docs/signing.md.\n\n" +
			"Of a key of type seal, prints the file CLUSTER.pub for --seal-keys of work-hub. See docs/sealing.md.",
		Example: "  workctl keys public --key=signing.key --source=hub1 > trusted-keys.yaml\n" +
			"  workctl keys public --key=agent.key --cluster=cluster1 > trusted-agents.yaml\n" +
			"  workctl keys public --key=unseal.key > seal-keys/cluster1.pub",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := invalid(cmd, required(flag{"key", strings.Join(paths, "")})...); err != nil {
				return err
			}
			if key, err := readSealKey(paths[0]); err == nil {
				if len(paths) > 1 || len(sources) > 0 || len(clusters) > 0 {
					return fmt.Errorf("%s is of type seal: --key must name one such file, without --source and --cluster", paths[0])
				}
				_, err = stdout.Write(key.Public().PEM())
				return err
			}
			if (len(sources) == 0) == (len(clusters) == 0) {
				return errors.New("--source or --cluster is required: the ids of the sources, or the clusters, that the keys may sign for")
			}
			text, err := trustedText(paths, sources, clusters)
			if err == nil {
				_, err = stdout.Write(text)
			}
			return err
		},
	})
	cmd.Flags().StringSliceVar(&paths, "key", nil, "files with private keys, comma-separated; required")
	cmd.Flags().StringSliceVar(&sources, "source", nil, "source ids that the keys may sign for, comma-separated; required, unless --cluster is set or the key is of type seal")
	cmd.Flags().StringSliceVar(&clusters, "cluster", nil, "clusters whose statuses the keys may sign, comma-separated")
	return cmd
}

// trustedText returns the file in which keys are trusted for sources, or for clusters.
func trustedText(paths, sources, clusters []string) ([]byte, error) {
	var trusted []signing.TrustedKey
	for _, path := range paths {
		key, err := readKey(path)
		if err != nil {
			return nil, err
		}
		trusted = append(trusted, signing.TrustedKey{
			PublicKey: key.Public(), Sources: named[wire.SourceID](sources), Clusters: named[wire.ClusterName](clusters),
		})
	}
	text, err := signing.FormatTrustedKeys(trusted...)
	if err != nil {
		return nil, err
	}
	if len(clusters) > 0 { // names may be invalid
		_, err = signing.ParseTrustedAgents(text)
	} else {
		_, err = signing.ParseTrustedKeys(text)
	}
	return text, err
}

func readSealKey(path string) (*sealing.Key, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return sealing.ParseKey(data)
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

// named returns names as those of another type: of sources, clusters or kinds, or as texts.
func named[T, F ~string](names []F) (list []T) {
	for _, name := range names {
		list = append(list, T(name))
	}
	return list
}

func listKeysCommand(stdout io.Writer) *cobra.Command {
	var path, trustedPath, agentsPath, sealPath string
	var format cli.FormatFlag
	cmd := leaf(&cobra.Command{
		Use:   "list [--trusted-keys=FILE] [--trusted-agents=FILE] [--key=FILE] [--seal-keys=DIR]",
		Short: "List keys with their ids, sources and clusters",
		Long:  "Lists the keys of a file of trusted keys or agents, of a private key, and of a directory of keys of clusters. It fails if a file is not valid.",
		Example: "  workctl keys list --key=signing.key --trusted-keys=trusted-keys.yaml\n" +
			"  workctl keys list --key=unseal.key --seal-keys=seal-keys",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" && trustedPath == "" && agentsPath == "" && sealPath == "" {
				return invalid(cmd, errors.New("--trusted-keys, --trusted-agents, --key or --seal-keys is required"))
			}
			private, err := listPrivate(path)
			trusted, trustedErr := listTrusted(trustedPath, signing.ParseTrustedKeys)
			agents, agentsErr := listTrusted(agentsPath, signing.ParseTrustedAgents)
			clusters, sealingErr := listSealing(sealPath)
			if err := errors.Join(err, trustedErr, agentsErr, sealingErr); err != nil {
				return err
			}
			keys := slices.Concat(private, trusted, agents, clusters)
			if format.Format() != cli.Table {
				return cli.WriteJSON(stdout, format.Format(), map[string]any{"keys": keys})
			}
			return printKeys(stdout, keys, agentsPath != "")
		},
	})
	fs := cmd.Flags()
	fs.StringVar(&trustedPath, "trusted-keys", "", "file of trusted keys")
	fs.StringVar(&agentsPath, "trusted-agents", "", "file of trusted agents")
	fs.StringVar(&path, "key", "", "file with a private key")
	fs.StringVar(&sealPath, "seal-keys", "", "directory with files CLUSTER.pub")
	format.Add(cmd, cli.Table, cli.JSON, cli.YAML, cli.JSONPath)
	return cmd
}

// listedKey is a key in a list.
type listedKey struct {
	ID       string   `json:"id"`
	File     string   `json:"file"`
	Use      string   `json:"use"` // signs, opens or seals; trusted of those of sources and clusters
	Sources  []string `json:"sources,omitempty"`
	Clusters []string `json:"clusters,omitempty"`
}

// printKeys prints a table of keys.
func printKeys(w io.Writer, keys []listedKey, clusters bool) error {
	title := "SOURCES"
	if clusters {
		title = "SOURCES OR CLUSTERS"
	}
	table := cli.Rows{Header: []string{"ID", "FILE", title}}
	for _, key := range keys {
		names := "(" + key.Use + ")"
		if key.Use == useTrusted {
			names = strings.Join(slices.Concat(key.Sources, key.Clusters), ",")
		}
		table.Add(key.ID, key.File, names)
	}
	return table.Write(w, cli.Style{}, 0)
}

// useTrusted is the use of public keys of sources and clusters.
const useTrusted = "trusted"

// listPrivate lists a private key; none if path is empty.
func listPrivate(path string) ([]listedKey, error) {
	if path == "" {
		return nil, nil
	}
	if key, err := readSealKey(path); err == nil {
		return []listedKey{{ID: key.Public().ID, File: filepath.Base(path), Use: "opens"}}, nil
	}
	key, err := readKey(path)
	if err != nil {
		return nil, err
	}
	return []listedKey{{ID: key.Public().ID, File: filepath.Base(path), Use: "signs"}}, nil
}

// listSealing lists the keys of clusters; none if dir is empty.
func listSealing(dir string) (listed []listedKey, err error) {
	if dir == "" {
		return nil, nil
	}
	keys, err := sealing.ListKeys(dir)
	for _, key := range keys {
		listed = append(listed, listedKey{ID: key.ID, File: key.File, Use: "seals"})
	}
	return listed, err
}

// listTrusted lists the keys in a file of trusted keys or agents; none if path is empty.
func listTrusted(path string, parse func([]byte) ([]signing.TrustedKey, error)) (listed []listedKey, err error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, key := range keys {
		listed = append(listed, listedKey{ID: key.ID, File: filepath.Base(path), Use: useTrusted,
			Sources: named[string](key.Sources), Clusters: named[string](key.Clusters)})
	}
	return listed, nil
}
