package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newAssets(names []string) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "assets --dir=DIR",
		Short: "Create a directory for envtest's KUBEBUILDER_ASSETS",
		Long: `assets creates links to this binary in DIR, under whose names it runs that program:
` + strings.Join(names, ", ") + `.
Existing links are replaced; other files with these names are an error.`,
		Example: `  controlplane assets --dir=/tmp/assets
  KUBEBUILDER_ASSETS=/tmp/assets go test ./...`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return errors.New("--dir is required")
			}
			dir, err := filepath.Abs(dir)
			if err != nil {
				return fmt.Errorf("--dir=%s: %w", dir, err)
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this program: %w", err)
			}
			if err := link(program, dir, names); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory for the links, created if it does not exist; required")
	return cmd
}

// link creates a symbolic link to program in dir for each name.
func link(program, dir string, names []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory for links: %w", err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return fmt.Errorf("looking at %s: %w", path, err)
		case info.Mode()&os.ModeSymlink == 0:
			return fmt.Errorf("%s exists and is not a link: move it away, or set another --dir", path)
		default:
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("replacing a link: %w", err)
			}
		}
		if err := os.Symlink(program, path); err != nil {
			return fmt.Errorf("creating a link: %w", err)
		}
	}
	return nil
}
