package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Bounds of what is read of a repository.
const (
	maxFiles = 20_000
	maxFile  = 1 << 20 // bytes; a work has at most 512,000 bytes of manifests
)

// commit is the content of a commit: the files below the folder of clusters, by path below it.
type commit struct {
	id    string
	files map[string][]byte
}

// read returns the newest commit of the branch: known if that is the newest, without a transfer.
func read(ctx context.Context, o options, known commit) (commit, error) {
	var auth transport.AuthMethod
	if o.password != "" {
		text, err := os.ReadFile(o.password)
		if err != nil {
			return known, err
		}
		auth = &http.BasicAuth{Username: "git", Password: string(bytes.TrimSpace(text))}
	}
	branch := plumbing.NewBranchReferenceName(o.branch)
	remote := git.NewRemote(nil, &config.RemoteConfig{Name: "origin", URLs: []string{o.repository}})
	references, err := remote.ListContext(ctx, &git.ListOptions{Auth: auth})
	if err != nil {
		return known, fmt.Errorf("list the branches of %s: %w", o.repository, err)
	}
	newest := ""
	for _, r := range references {
		if r.Name() == branch {
			newest = r.Hash().String()
		}
	}
	switch newest {
	case "":
		return known, fmt.Errorf("%s has no branch %q", o.repository, o.branch)
	case known.id:
		return known, nil
	}
	clone, err := git.CloneContext(ctx, memory.NewStorage(), nil, &git.CloneOptions{
		URL: o.repository, Auth: auth, ReferenceName: branch, SingleBranch: true, Depth: 1, Tags: git.NoTags,
	})
	if err != nil {
		return known, fmt.Errorf("clone %s: %w", o.repository, err)
	}
	head, err := clone.Head()
	if err != nil {
		return known, err
	}
	at, err := clone.CommitObject(head.Hash())
	if err != nil {
		return known, err
	}
	tree, err := at.Tree()
	if err != nil {
		return known, err
	}
	next := commit{id: head.Hash().String()}
	next.files, err = filesOf(tree, o.folder)
	return next, err
}

// filesOf returns the files below a folder, by path below it. A folder that is not there is an error.
func filesOf(tree *object.Tree, folder string) (map[string][]byte, error) {
	if folder != "" {
		below, err := tree.Tree(folder)
		if err != nil {
			return nil, fmt.Errorf("folder %q: %w", folder, err)
		}
		tree = below
	}
	files := map[string][]byte{}
	err := tree.Files().ForEach(func(f *object.File) error {
		if len(files) == maxFiles {
			return fmt.Errorf("there are more than %d files", maxFiles)
		}
		if f.Size > maxFile {
			return fmt.Errorf("%s has %d bytes, more than %d", f.Name, f.Size, maxFile)
		}
		text, err := f.Contents()
		files[f.Name] = []byte(text)
		return err
	})
	if err == nil && len(files) == 0 {
		err = errors.New("there are no files")
	}
	return files, err
}
