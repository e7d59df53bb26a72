package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
)

// kind is a kind of objects that commands take as argument.
type kind string

const (
	works    kind = "work"
	clusters kind = "cluster"
	sets     kind = "set"
)

// kindNames are the names of the kinds, those that kubectl knows among them.
var kindNames = map[kind][]string{
	works:    {"work", "works", "mw", "manifestwork", "manifestworks"},
	clusters: {"cluster", "clusters", "mcl", "mcls", "managedcluster", "managedclusters"},
	sets:     {"set", "sets", "mwrs", "manifestworkreplicaset", "manifestworkreplicasets"},
}

// target is what the arguments of a command name.
type target struct {
	kind  kind
	names []string
}

// parseTarget parses KIND [NAME...] or KIND/NAME, of one of the kinds.
func parseTarget(cmd *cobra.Command, args []string, kinds ...kind) (target, error) {
	var t target
	first, name, slash := strings.Cut(args[0], "/")
	first, _, _ = strings.Cut(first, ".") // manifestwork.work.open-cluster-management.io, as -o name prints
	for _, k := range kinds {
		if slices.Contains(kindNames[k], strings.ToLower(first)) {
			t.kind = k
		}
	}
	if t.kind == "" {
		return t, usageError(cmd, cli.Usagef("%q is no kind of this command: name one of %s", args[0], strings.Join(named[string](kinds), ", ")))
	}
	if slash {
		t.names = append(t.names, name)
	}
	t.names = append(t.names, args[1:]...)
	return t, nil
}

// hub returns a reader of the hub's API.
func hub(o *cli.Options) (*fleet.Reader, error) {
	config, err := o.RESTConfig()
	if err != nil {
		return nil, err
	}
	return fleet.NewReader(config)
}

// hubNamespace returns the hub's reader and the namespace that the flags choose.
func hubNamespace(o *cli.Options) (reader *fleet.Reader, namespace string, err error) {
	if reader, err = hub(o); err != nil {
		return nil, "", err
	}
	namespace, err = o.HubNamespace()
	return reader, namespace, err
}

// hubNamespaceFlag adds the flag of the namespace in which the hub looks for tokens; empty: [fleet.Reader.HubNamespace] tells.
func hubNamespaceFlag(fs *pflag.FlagSet, namespace *string) {
	fs.StringVar(namespace, "hub-namespace", "", "namespace in which the hub looks for tokens: that of its pod, or kube-system (default that of the hub's Lease)")
}

// Limits of completions.
const (
	completionTimeout = 2 * time.Second
	completionLimit   = 500
)

// complete returns the completion of KIND NAME.
func complete(o *cli.Options, kinds ...kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return named[string](kinds), cobra.ShellCompDirectiveNoFileComp
		}
		t, err := parseTarget(cmd, args, kinds...)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd.Context(), o, t.kind), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames returns the completion of the names of a kind.
func completeNames(o *cli.Options, k kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return names(cmd.Context(), o, k), cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names of the first objects of a kind; none if they cannot be read at once.
func names(ctx context.Context, o *cli.Options, k kind) []string {
	reader, namespace, err := hubNamespace(o)
	if err != nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list := metav1.ListOptions{Limit: completionLimit}
	var found runtime.Object
	switch k {
	case works:
		found, err = reader.Clients.WorkV1().ManifestWorks(namespace).List(ctx, list)
	case clusters:
		found, err = reader.Clients.ClusterV1().ManagedClusters().List(ctx, list)
	case sets:
		found, err = reader.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace).List(ctx, list)
	}
	if err != nil {
		return nil
	}
	var all []string
	_ = meta.EachListItem(found, func(object runtime.Object) error {
		all = append(all, object.(metav1.Object).GetName())
		return nil
	})
	return all
}
