package forget

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/enrolment"
)

const (
	// parallel is the number of works that are ended at a time.
	parallel = 8
	// rounds is how often works are listed again that somebody creates meanwhile, such as a set that has not noticed yet.
	rounds = 5
	// hubPatience is how long the hub may take to notice that it does not accept the cluster any more.
	hubPatience = 15 * time.Second
	// interval is how often it is looked whether something is gone.
	interval = 200 * time.Millisecond
)

// End ends everything, in an order in which the hub publishes nothing to the cluster, and no part that is left lets it in again. It
// waits until the objects are gone, for timeout at most, and returns what is left. say is told what is done.
func (f *Found) End(ctx context.Context, timeout time.Duration, say func(string)) (left []string, err error) {
	for _, step := range []func(context.Context, func(string)) error{f.endTokens, f.exclude, f.endCertificates, f.endWorks, f.endCluster, f.endRequests, f.endProfiles, f.endWorks, f.endNamespace} {
		if err := step(ctx, say); err != nil {
			return nil, err
		}
	}
	left = []string{"what the API server has not answered yet"}
	err = wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		now, err := f.left(ctx)
		if err == nil {
			left = now
		}
		return err == nil && len(now) == 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = nil
	}
	return left, err
}

func (f *Found) endTokens(ctx context.Context, say func(string)) error {
	for _, id := range f.Tokens {
		if err := join.DeleteToken(ctx, f.reader.Kube.CoreV1().Secrets(f.hubNamespace), id); err != nil && !apierrors.IsNotFound(err) {
			return cli.APIError("delete the token "+id, err)
		}
		say("token " + id + ": deleted")
	}
	return nil
}

// exclude has the hub accept the cluster no more, and revoke its certificates, and waits until it has noticed the first, if it is there: it
// then answers no question of the agent, should the cluster return now.
func (f *Found) exclude(ctx context.Context, say func(string)) error {
	if f.Cluster == nil {
		return nil
	}
	client := f.reader.Clients.ClusterV1().ManagedClusters()
	var err error
	switch now := time.Now(); {
	case len(f.certificates(now)) > 0:
		err = join.Revoke(ctx, f.reader.Clients, f.Name, "forgotten", now) // which excludes it, too
	case f.Cluster.Spec.HubAcceptsClient:
		_, err = client.Patch(ctx, f.Name, types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":false}}`), metav1.PatchOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return cli.APIError("have the hub accept the cluster no more", err)
	case f.Cluster.Spec.HubAcceptsClient:
		say("managedcluster " + f.Name + ": not accepted")
	}
	noticed := func(ctx context.Context) (bool, error) {
		cluster, err := client.Get(ctx, f.Name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), ignoreNotFound(err)
		}
		return !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted), nil
	}
	err = wait.PollUntilContextTimeout(ctx, interval, hubPatience, true, noticed)
	if wait.Interrupted(err) && ctx.Err() == nil {
		say("the hub has not noticed it: it seems to be away, and will find everything done")
		return nil
	}
	return err
}

// endCertificates waits until the hub keeps what the cluster could connect with on its revocation list: it is to hold when there is no
// ManagedCluster.
func (f *Found) endCertificates(ctx context.Context, say func(string)) error {
	valid := f.certificates(time.Now())
	if len(valid) == 0 {
		return nil
	}
	listed := func(ctx context.Context) (bool, error) {
		list, err := f.reader.Kube.CoreV1().ConfigMaps(f.hubNamespace).Get(ctx, v1alpha1.RevocationsConfigMap, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		return onLists(valid, list.Data), nil
	}
	err := wait.PollUntilContextTimeout(ctx, interval, hubPatience, true, listed)
	switch {
	case err == nil:
		say("certificates of " + f.Name + ": on the revocation list of the hub")
		return nil
	case ctx.Err() != nil:
		return err
	case !wait.Interrupted(err):
		return cli.APIError("read the revocation list of the hub", err)
	}
	return cli.Errorf("the hub has not put the certificates of %s on its revocation list within %s: the cluster could still connect", f.Name, hubPatience).
		Do("see that the hub runs, with --join, in the namespace %s (else: --hub-namespace), and repeat this; or delete the annotation %s of the ManagedCluster, and revoke the certificate at the broker: docs/certificates.md", f.hubNamespace, v1alpha1.CertificatesAnnotationKey)
}

// onLists reports whether each certificate is on the revocation list of the hub that had it signed: the one that its broker has.
func onLists(valid []enrolment.Issued, lists map[string]string) bool {
	return !slices.ContainsFunc(valid, func(i enrolment.Issued) bool {
		list := lists[i.Source]
		if i.Source == "" {
			list = strings.Join(slices.Collect(maps.Values(lists)), "\n")
		}
		return !strings.Contains(list, strconv.Quote(i.Serial))
	})
}

// endWorks ends the works, also those that somebody creates meanwhile.
func (f *Found) endWorks(ctx context.Context, say func(string)) error {
	for range rounds {
		works, err := f.reader.Works(ctx, f.Name, "")
		if err != nil || len(works) == 0 {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		for i := range works {
			group.Go(func() error {
				if err := f.endWork(ctx, &works[i]); err != nil {
					return cli.APIError("end the work "+works[i].Name, err)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for i := range works {
			say("work " + works[i].Name + ": ended")
		}
	}
	return cli.Errorf("works of %s are created again and again", f.Name).Do("find out who creates them: kubectl get manifestworks -n %s -o yaml", f.Name)
}

// endWork has the hub forget a work, and deletes it. The mark comes first, and alone: the hub is to see it before the work is gone.
func (f *Found) endWork(ctx context.Context, work *workv1.ManifestWork) error {
	client := f.reader.Clients.WorkV1().ManifestWorks(f.Name)
	patch := func(field string, value any) error {
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": work.UID, field: value}})
		if err != nil {
			return fmt.Errorf("encode the patch: %w", err)
		}
		_, err = client.Patch(ctx, work.Name, types.MergePatchType, data, metav1.PatchOptions{})
		return err
	}
	var err error
	if !workv1.IsForgotten(work) {
		err = patch("annotations", map[string]string{workv1.ForgottenAnnotationKey: workv1.ForgottenValue})
	}
	if err == nil && len(work.Finalizers) > 0 {
		err = patch("finalizers", nil)
	}
	if err == nil {
		err = client.Delete(ctx, work.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &work.UID}})
	}
	if apierrors.IsConflict(err) {
		return nil // another work has the name: the next round ends it
	}
	return ignoreNotFound(err)
}

func (f *Found) endCluster(ctx context.Context, say func(string)) error {
	if f.Cluster == nil {
		return nil
	}
	err := f.reader.Clients.ClusterV1().ManagedClusters().Delete(ctx, f.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &f.Cluster.UID}})
	if err := ignoreNotFound(err); err != nil {
		return cli.APIError("delete the ManagedCluster", err)
	}
	say("managedcluster " + f.Name + ": deleted")
	return nil
}

// endRequests follows endCluster, after which no device may ask for a certificate without a token.
func (f *Found) endRequests(ctx context.Context, say func(string)) error {
	names, err := f.requests(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return cli.APIError("list the CertificateSigningRequests", err)
	}
	for _, name := range names {
		err := f.reader.Kube.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, metav1.DeleteOptions{})
		if err := ignoreNotFound(err); err != nil {
			return cli.APIError("delete the CertificateSigningRequest "+name, err)
		}
		say("certificatesigningrequest " + name + ": deleted")
	}
	return nil
}

// endProfiles follows endCluster, after which no hub makes one again. A hub that runs may be first.
func (f *Found) endProfiles(ctx context.Context, say func(string)) error {
	for _, p := range f.Profiles {
		name := p.Namespace + "/" + p.Name
		err := f.reader.Kube.CoreV1().RESTClient().Delete().AbsPath(profilesPath, "namespaces", p.Namespace, "clusterprofiles", p.Name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}).Do(ctx).Error()
		if err := ignoreNotFound(err); err != nil {
			return cli.APIError("delete the ClusterProfile "+name, err)
		}
		say("clusterprofile " + name + ": deleted")
	}
	return nil
}

func (f *Found) endNamespace(ctx context.Context, say func(string)) error {
	if !f.ownsNamespace() {
		return nil
	}
	err := f.reader.Kube.CoreV1().Namespaces().Delete(ctx, f.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &f.Namespace.UID}})
	if err := ignoreNotFound(err); err != nil && !apierrors.IsConflict(err) { // 409: it is being deleted already
		return cli.APIError("delete the namespace "+f.Name, err)
	}
	say("namespace " + f.Name + ": deleted")
	return nil
}

// left returns what is not gone yet, and what it waits for.
func (f *Found) left(ctx context.Context) (left []string, err error) {
	cluster, err := f.reader.Clients.ClusterV1().ManagedClusters().Get(ctx, f.Name, metav1.GetOptions{})
	switch {
	case err == nil && f.Cluster != nil && cluster.UID == f.Cluster.UID:
		left = append(left, fmt.Sprintf("managedcluster %s, with the finalizers %s", f.Name, strings.Join(cluster.Finalizers, ", ")))
	case err != nil && !apierrors.IsNotFound(err):
		return nil, cli.APIError("get the cluster "+f.Name, err)
	}
	profiles, err := f.profiles(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, cli.APIError("list the ClusterProfiles", err)
	}
	for _, p := range profiles {
		left = append(left, fmt.Sprintf("clusterprofile %s/%s", p.Namespace, p.Name))
	}
	if !f.ownsNamespace() {
		return left, nil
	}
	namespace, err := f.reader.Kube.CoreV1().Namespaces().Get(ctx, f.Name, metav1.GetOptions{})
	switch {
	case err == nil && namespace.UID == f.Namespace.UID:
		why := ""
		for _, c := range namespace.Status.Conditions {
			if c.Status == "True" {
				why = ": " + c.Message
			}
		}
		left = append(left, "namespace "+f.Name+why)
	case err != nil && !apierrors.IsNotFound(err):
		return nil, cli.APIError("get the namespace "+f.Name, err)
	}
	return left, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
