// Package backup has the commands that write a snapshot of the data of a control plane, and restore
// it. They are those of etcdctl and etcdutl, for the etcd of a control plane.
//
//	cli.NewCommand(backup.NewSnapshot(), backup.NewRestore())
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"

	"github.com/workwire/workwire/controlplane/internal/plane"
)

// NewSnapshot returns the command snapshot.
func NewSnapshot() *cobra.Command {
	var dir, file string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "snapshot --dir=DIR --output=FILE",
		Short: "Write a backup of a control plane that runs",
		Long: `snapshot writes all data of the control plane in DIR, which must run, to FILE: an etcd snapshot as
of "etcdctl snapshot save". It has all Secrets. Keep DIR/pki too: clients know its authority.`,
		Example: `  controlplane snapshot --dir=/data --output=/backup/hub.db`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" || file == "" {
				return errors.New("--dir and --output are required")
			}
			if timeout <= 0 {
				return fmt.Errorf("--timeout=%s must be positive", timeout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return save(ctx, dir, file)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "", "directory of the control plane; required")
	flags.StringVarP(&file, "output", "o", "", "file to write with mode 0600, replaced when the snapshot is whole; required")
	flags.DurationVar(&timeout, "timeout", time.Minute, "maximum time until the snapshot is written")
	return cmd
}

func save(ctx context.Context, dir, file string) error {
	if err := plane.CheckOwnData(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := plane.Health(ctx, dir); err != nil {
		return err
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("--output=%s: %w", file, err)
	}
	// The path of a socket is limited to about 100 bytes: the URL is relative.
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("--dir=%s: %w", dir, err)
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) // it warns of connections that are closed
	config := clientv3.Config{Context: ctx, Endpoints: []string{plane.EtcdURL}, DialTimeout: 5 * time.Second}
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, config, file); err != nil {
		return fmt.Errorf("writing a snapshot of %s to %s: %w", dir, file, err)
	}
	return nil
}

// NewRestore returns the command restore.
func NewRestore() *cobra.Command {
	var dir, file string
	var bump uint64
	cmd := &cobra.Command{
		Use:   "restore --dir=DIR --snapshot=FILE",
		Short: "Replace the data of a control plane by a snapshot",
		Long: `restore replaces the data of the control plane in DIR, which must be stopped, by a snapshot: that
of "controlplane snapshot", or of etcdctl. The next "controlplane up" starts with it. The data of
before stays in DIR/etcd.before until the next restore.

With --bump-revision, resource versions go on above those of before, which clients that keep
running may need to notice the restore; Kubernetes recommends 1000000000.`,
		Example: `  controlplane restore --dir=/data --snapshot=/backup/hub.db --bump-revision=1000000000`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" || file == "" {
				return errors.New("--dir and --snapshot are required")
			}
			syscall.Umask(0o077)
			before, err := restore(dir, file, bump)
			if err != nil {
				return err
			}
			says := "the data of before is in " + before
			if _, err := os.Stat(before); errors.Is(err, os.ErrNotExist) {
				says = "there was no data before"
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "restored; %s\n", says)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "", "directory of the control plane; required")
	flags.StringVar(&file, "snapshot", "", "the snapshot; required")
	flags.Uint64Var(&bump, "bump-revision", 0,
		"number to add to the revision of the snapshot, whose older revisions are marked as compacted; 0 adds none")
	return cmd
}

func restore(dir, file string, bump uint64) (before string, err error) {
	return plane.ReplaceData(dir, func(data string, member plane.Member) error {
		err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, OutputDataDir: data,
			Name: member.Name, PeerURLs: member.PeerURLs, InitialCluster: member.InitialCluster, InitialClusterToken: "etcd-cluster",
			RevisionBump: bump, MarkCompacted: bump > 0,
		})
		if err != nil {
			return fmt.Errorf("restoring %s: %w", file, err)
		}
		return nil
	})
}
