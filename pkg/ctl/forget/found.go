// Package forget does what workctl forget does: it ends what the hub has of a cluster that is gone for good, and has the hub say
// nothing about its works, so that the cluster keeps its objects should it return (docs/clusters.md).
//
//	found, err := forget.Find(ctx, reader, "rome", "kube-system")
//	...
//	left, err := found.End(ctx, time.Minute, say)
//
// All of it can be interrupted at any point: called again, it finds what is left.
package forget

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// shown is how many objects of a work, and how many works, are named.
const shown = 8

// Found is what the hub's API has of a cluster. The zero value of a field: there is none, or the user may not read it.
type Found struct {
	// Name of the cluster.
	Name    string
	Cluster *clusterv1.ManagedCluster
	// Works are without their manifests.
	Works     []workv1.ManifestWork
	Namespace *corev1.Namespace
	// Tokens are the ids of those that only this cluster may join with, Requests the names of its CertificateSigningRequests.
	Tokens, Requests []string
	// Profiles are its ClusterProfiles, of hubs that keep them.
	Profiles []metav1.PartialObjectMetadata
	// Hidden says what the user may not read.
	Hidden []string

	reader       *fleet.Reader
	hubNamespace string
}

// Find reads what the API has of a cluster; hubNamespace is where the hub looks for tokens, empty: where its Lease is.
func Find(ctx context.Context, reader *fleet.Reader, cluster, hubNamespace string) (*Found, error) {
	f := &Found{Name: cluster, reader: reader, hubNamespace: hubNamespace}
	found, err := reader.Clients.ClusterV1().ManagedClusters().Get(ctx, cluster, metav1.GetOptions{})
	switch {
	case err == nil:
		f.Cluster = found
	case !apierrors.IsNotFound(err):
		return nil, cli.APIError("get the cluster "+cluster, err)
	}
	if hubNamespace == "" {
		f.hubNamespace = reader.HubNamespace(ctx)
	}
	namespace, err := reader.Kube.CoreV1().Namespaces().Get(ctx, cluster, metav1.GetOptions{})
	switch {
	case err == nil:
		f.Namespace = namespace
	case !apierrors.IsNotFound(err):
		return nil, cli.APIError("get the namespace "+cluster, err)
	}
	if f.Works, err = reader.Works(ctx, cluster, ""); err != nil {
		return nil, err
	}
	optional := func(what string, err error) error {
		if apierrors.IsForbidden(err) {
			f.Hidden = append(f.Hidden, what)
			return nil
		}
		return cli.APIError("list the "+what, err)
	}
	if f.Tokens, err = f.tokens(ctx); err != nil {
		if err := optional("tokens in "+f.hubNamespace, err); err != nil {
			return nil, err
		}
	}
	if f.Requests, err = f.requests(ctx); err != nil {
		if err := optional("CertificateSigningRequests", err); err != nil {
			return nil, err
		}
	}
	if f.Profiles, err = f.profiles(ctx); err != nil {
		if err := optional("ClusterProfiles", err); err != nil {
			return nil, err
		}
	}
	return f, nil
}

const profilesPath = "/apis/multicluster.x-k8s.io/v1alpha1"

// profiles returns the ClusterProfiles that hubs keep of the cluster; none if the API has no such kind.
func (f *Found) profiles(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	data, err := f.reader.Kube.CoreV1().RESTClient().Get().AbsPath(profilesPath, "clusterprofiles").
		Param("fieldSelector", "metadata.name="+f.Name).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read the ClusterProfiles: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(p metav1.PartialObjectMetadata) bool { // those of other cluster managers
		return !strings.HasPrefix(p.Labels["x-k8s.io/cluster-manager"], "workwire-")
	}), nil
}

func (f *Found) tokens(ctx context.Context) (ids []string, err error) {
	grants, err := join.Tokens(ctx, f.reader.Kube.CoreV1().Secrets(f.hubNamespace))
	for _, g := range grants {
		if slices.Equal(g.Clusters, []wire.ClusterName{wire.ClusterName(f.Name)}) {
			ids = append(ids, g.ID())
		}
	}
	return ids, err
}

func (f *Found) requests(ctx context.Context) (names []string, err error) {
	list, err := f.reader.Kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.ClusterLabelKey + "=" + f.Name})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// NothingLeft reports whether there is nothing to end.
func (f *Found) NothingLeft() bool {
	return f.Cluster == nil && len(f.Works)+len(f.Tokens)+len(f.Requests)+len(f.Profiles) == 0 && !f.ownsNamespace()
}

// ownsNamespace reports whether the namespace was made for the cluster, and goes with it.
func (f *Found) ownsNamespace() bool {
	return f.Namespace != nil && f.Namespace.Labels[clusterv1.NamespaceLabelKey] == f.Name
}

// Refusal returns why the cluster is not to be forgotten, because its works can be deleted as usual; empty if it may be.
func (f *Found) Refusal() string {
	if f.Cluster == nil {
		return ""
	}
	available := meta.FindStatusCondition(f.Cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case available == nil:
		return ""
	case available.Status == metav1.ConditionTrue:
		return "it is connected"
	case available.Reason == clusterv1.ReasonHubDisconnected:
		return "the hub has no connection to the broker, and does not know whether the cluster has one"
	default:
		return ""
	}
}

// Describe returns what is known to be left on the cluster, and what is ended.
func (f *Found) Describe(now time.Time) string {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(cli.OneLine(fmt.Sprintf(format, args...)) + "\n") }
	switch {
	case f.Cluster == nil:
		line("Cluster %s has no ManagedCluster.", f.Name)
	case f.Cluster.Annotations[clusterv1.LastSeenAnnotationKey] == "":
		line("Cluster %s was never heard from.", f.Name)
	default:
		line("Cluster %s was last heard from %s.", f.Name, ago(now, f.Cluster.Annotations[clusterv1.LastSeenAnnotationKey]))
	}
	f.describeWorks(now, line)
	if f.Cluster != nil {
		if held := meta.FindStatusCondition(f.Cluster.Status.Conditions, clusterv1.ManagedClusterConditionWorksHeld); held != nil && held.Status == metav1.ConditionTrue {
			line("It also keeps works that the hub does not know: %s", held.Message)
		}
	}
	line("Ended at the hub: %s.", strings.Join(f.ends(now), ", "))
	if f.Namespace != nil && !f.ownsNamespace() {
		line("Kept: the namespace %s, which the hub has not made.", f.Name)
	}
	if len(f.Hidden) > 0 {
		line("Not looked for, because you may not list them: %s.", strings.Join(f.Hidden, ", "))
	}
	if f.Cluster != nil && len(f.certificates(now)) == 0 {
		if at, err := time.Parse(time.RFC3339, f.Cluster.Annotations[v1alpha1.CertificateExpiresAnnotationKey]); err == nil && at.After(now) {
			line("Its certificate is valid at the broker until %s: see docs/certificates.md, Revoke a certificate.", at.UTC().Format(time.RFC3339))
		}
	}
	return b.String()
}

func (f *Found) describeWorks(now time.Time, line func(string, ...any)) {
	if len(f.Works) == 0 {
		line("The hub has no works of it.")
		return
	}
	line("What the hub knows to be there stays there, and nobody looks after it:")
	works := slices.SortedFunc(slices.Values(f.Works), func(a, b workv1.ManifestWork) int { return cmp.Compare(a.Name, b.Name) })
	for i := range works[:min(len(works), shown)] {
		line("  %s: %s", works[i].Name, holds(&works[i], now))
	}
	if more := len(works) - shown; more > 0 {
		line("  and %s", cli.Plural(more, "more work", "more works"))
	}
}

// holds says what the cluster has of a work, as its status lists it.
func holds(work *workv1.ManifestWork, now time.Time) string {
	var objects []string
	manifests := work.Status.ResourceStatus.Manifests
	for i := range manifests {
		if m := manifests[i].ResourceMeta; isThere(manifests[i].Conditions) {
			objects = append(objects, m.Kind+" "+strings.TrimPrefix(m.Namespace+"/"+m.Name, "/"))
		}
	}
	text := "nothing that was reported"
	if len(objects) > 0 {
		text = condition.First(objects, shown, len(objects), ", ")
	}
	if work.DeletionTimestamp != nil {
		text += fmt.Sprintf(" (deleted %s ago: if the broker still has the deletion for the cluster, its return carries it out)", duration.HumanDuration(now.Sub(work.DeletionTimestamp.Time)))
	}
	return text
}

// isThere reports whether the object of a manifest is on the cluster. Applied tells of the last attempt only, and counts where
// nobody could look.
func isThere(conditions []metav1.Condition) bool {
	available := meta.FindStatusCondition(conditions, workv1.ManifestAvailable)
	if available == nil || available.Status == metav1.ConditionUnknown {
		return meta.IsStatusConditionTrue(conditions, workv1.ManifestApplied)
	}
	return available.Status == metav1.ConditionTrue
}

// certificates returns those that the hub has noted of the cluster, and that have not expired.
func (f *Found) certificates(now time.Time) []enrolment.Issued {
	if f.Cluster == nil {
		return nil
	}
	return enrolment.Unexpired(enrolment.ParseIssued(f.Cluster.Annotations[v1alpha1.CertificatesAnnotationKey]), now)
}

// ends names what is ended.
func (f *Found) ends(now time.Time) []string {
	var all []string
	count := func(n int, what string) {
		if n > 0 {
			all = append(all, cli.Plural(n, what, what+"s"))
		}
	}
	count(len(f.Works), "work")
	count(len(f.Tokens), "token")
	count(len(f.Requests), "CertificateSigningRequest")
	count(len(f.certificates(now)), "certificate")
	count(len(f.Profiles), "ClusterProfile")
	if f.Cluster != nil {
		all = append(all, "the ManagedCluster")
	}
	if f.ownsNamespace() {
		all = append(all, "the namespace "+f.Name+" with everything in it")
	}
	return all
}

// ago returns how long ago a time was that is RFC 3339, and the time.
func ago(now time.Time, text string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "at " + text
	}
	return fmt.Sprintf("%s ago (%s)", duration.HumanDuration(now.Sub(at)), text)
}
