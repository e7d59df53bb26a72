package clusters

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
)

// inventory is ClusterProfiles as their consumers see them, who know the published API and not us.
type inventory struct {
	*forgettable
	dynamic.ResourceInterface
	manager string
	plugins map[string]*clientcmdapi.ExecConfig // of the consumer, by the name of a provider
}

var profileKind = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"}

// profile waits until a ClusterProfile, nil for none, is as wanted.
func (w *inventory) profile(name, what string, want func(*unstructured.Unstructured) bool) (found *unstructured.Unstructured) {
	w.Helper()
	kit.True(w, what, func() bool {
		list, err := w.List(w.Context(), metav1.ListOptions{LabelSelector: "x-k8s.io/cluster-manager=" + w.manager})
		if err != nil {
			return false
		}
		found = nil
		for i := range list.Items {
			if list.Items[i].GetName() == name {
				found = &list.Items[i]
			}
		}
		return want(found)
	})
	return found
}

func isGone(p *unstructured.Unstructured) bool { return p == nil }

// health returns the check that the control plane of a cluster is said to be so.
func health(status metav1.ConditionStatus) func(*unstructured.Unstructured) bool {
	return func(p *unstructured.Unstructured) bool {
		if p == nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "ControlPlaneHealthy" {
				return c["status"] == string(status)
			}
		}
		return false
	}
}

// properties returns those of a ClusterProfile.
func properties(p *unstructured.Unstructured) map[string]any {
	values := map[string]any{}
	list, _, _ := unstructured.NestedSlice(p.Object, "status", "properties")
	for _, item := range list {
		values[item.(map[string]any)["name"].(string)] = item.(map[string]any)["value"]
	}
	return values
}

// foreign makes a ClusterProfile of another cluster manager.
func (w *inventory) foreign(name string) *unstructured.Unstructured {
	w.Helper()
	p := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"clusterManager": map[string]any{"name": "somebody-else"}},
	}}
	made, err := w.Create(w.Context(), p, metav1.CreateOptions{})
	kit.NoError(w, err)
	return made
}

// patch changes a ClusterProfile as somebody else does.
func (w *inventory) patch(name, patch string, subresources ...string) {
	w.Helper()
	_, err := w.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	kit.NoError(w, err)
}

// change changes the ManagedCluster.
func (w *inventory) change(patch string) {
	w.Helper()
	_, err := w.Client().ClusterV1().ManagedClusters().Patch(w.Context(), w.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// reach makes a request to the cluster as a consumer does (KEP-5339): where the first provider that it has a credential plugin for says that
// the cluster is, with what the plugin of that name prints.
func (w *inventory) reach(p *unstructured.Unstructured) {
	w.Helper()
	providers, _, _ := unstructured.NestedSlice(p.Object, "status", "accessProviders")
	for _, provider := range providers {
		plugin := w.plugins[provider.(map[string]any)["name"].(string)]
		if plugin == nil {
			continue
		}
		cluster := provider.(map[string]any)["cluster"].(map[string]any)
		authority, err := base64.StdEncoding.DecodeString(cluster["certificate-authority-data"].(string))
		kit.NoError(w, err)
		client := kubernetes.NewForConfigOrDie(&rest.Config{Host: cluster["server"].(string), ExecProvider: plugin, TLSClientConfig: rest.TLSClientConfig{CAData: authority}})
		kit.Eventually(w, "the cluster is reached", func() error { // its API server learns of the RoleBinding by a watch
			_, err := client.CoreV1().Namespaces().Get(w.Context(), w.Targets[0], metav1.GetOptions{})
			return err
		})
		return
	}
	w.Fatalf("none of the %d access providers has a plugin", len(providers))
}

// plugin returns a credential plugin that has a token for the cluster at a server, and for no other.
func (w *inventory) plugin(server string) *clientcmdapi.ExecConfig {
	w.Helper()
	text := fmt.Sprintf("#!/bin/sh\ncase \"$KUBERNETES_EXEC_INFO\" in *'%s'*) ;; *) exit 1 ;; esac\n"+
		`echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'`+"\n", server, w.token())
	command := filepath.Join(w.TempDir(), "plugin")
	kit.NoError(w, os.WriteFile(command, []byte(text), 0o700))
	return &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: command, ProvideClusterInfo: true, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
}

// token returns a token for the cluster.
func (w *inventory) token() string {
	w.Helper()
	client, name := kubernetes.NewForConfigOrDie(w.Spokes[0].REST()), metav1.ObjectMeta{Name: kit.Unique("consumer")}
	accounts := client.CoreV1().ServiceAccounts(w.Targets[0])
	_, err := accounts.Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{})
	kit.NoError(w, err)
	_, err = client.RbacV1().RoleBindings(w.Targets[0]).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.Targets[0], Name: name.Name}},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	answer, err := accounts.CreateToken(w.Context(), name.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	kit.NoError(w, err)
	return answer.Status.Token
}

// TestClusterProfiles: consumers find accepted clusters by their inventory, and reach them by what others add to it. What others have
// in the inventory, and add to our profiles, stays.
func TestClusterProfiles(t *testing.T) {
	kit.NoError(t, install.CRDs(t.Context(), hubPlane.REST(), crds.Optional()...))
	f := newForgettable(t)
	namespace := hubPlane.Namespace(t, "inventory")
	w := &inventory{f, dynamic.NewForConfigOrDie(f.Hub.REST()).Resource(profileKind).Namespace(namespace), hub.ClusterManager(f.Source), nil}
	other, taken := w.foreign("other"), w.foreign("taken")
	accept(w.World, "taken")
	t.Cleanup(func() {
		_ = w.Client().ClusterV1().ManagedClusters().Delete(context.Background(), "taken", metav1.DeleteOptions{})
	})
	var requests *kit.Requests
	start := func() func() {
		return w.StartHub(func(c *hub.Config) { requests, c.ClusterProfiles = kit.CountRequests(c.REST), namespace }).Stop
	}
	stop := start()
	a := w.StartAgent(0, func(c *agent.Config) { c.AboutInterval = time.Minute })
	system, err := kubernetes.NewForConfigOrDie(spokePlane.REST()).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	kit.NoError(t, err)
	found := w.profile(w.name, "the profile says what the cluster is", func(p *unstructured.Unstructured) bool {
		return health(metav1.ConditionTrue)(p) && properties(p)["cluster.clusterset.k8s.io"] == string(system.UID)
	})
	if version, _, _ := unstructured.NestedString(found.Object, "status", "version", "kubernetes"); version == "" || found.GetLabels()["multicluster.x-k8s.io/inventory-member-id"] != string(system.UID) {
		t.Errorf("the profile is %+v", found.Object)
	}

	w.plugins = map[string]*clientcmdapi.ExecConfig{"ours": w.plugin(spokePlane.REST().Host)}
	w.patch(w.name, fmt.Sprintf(`{"status":{"accessProviders":[{"name":"of-others","cluster":{"server":"https://192.0.2.1"}},{"name":"ours","cluster":{"server":%q,"certificate-authority-data":%q}}]}}`,
		spokePlane.REST().Host, base64.StdEncoding.EncodeToString(spokePlane.REST().CAData)), "status")
	w.reach(w.profile(w.name, "the profile says how to reach the cluster", health(metav1.ConditionTrue)))
	a.Stop()
	w.reach(w.profile(w.name, "away, as the hub knows", health(metav1.ConditionUnknown)))

	writes := func() map[string]int { return requests.Counts(kit.On("clusterprofiles/status")) }
	before := writes()
	w.change(`{"metadata":{"labels":{"` + clusterv1.ClusterSetLabelKey + `":"shops"}}}`)
	w.profile(w.name, "it has its set", func(p *unstructured.Unstructured) bool {
		return p.GetLabels()["multicluster.x-k8s.io/clusterset"] == "shops"
	})
	if after := writes(); !maps.Equal(after, before) {
		t.Errorf("status writes %v, were %v: what has not changed is written", after, before)
	}
	w.patch(w.name, `{"metadata":{"labels":{"x-k8s.io/cluster-manager":"mine"}},"spec":{"displayName":"mine"}}`)
	w.profile(w.name, "what is ours is put right", func(p *unstructured.Unstructured) bool {
		shown := ""
		if p != nil {
			shown, _, _ = unstructured.NestedString(p.Object, "spec", "displayName")
		}
		return shown == w.name
	})
	kit.NoError(t, w.ResourceInterface.Delete(t.Context(), w.name, metav1.DeleteOptions{}))
	w.profile(w.name, "made again", health(metav1.ConditionUnknown))
	w.change(`{"spec":{"hubAcceptsClient":false}}`)
	w.profile(w.name, "gone with the acceptance", isGone)
	w.change(`{"spec":{"hubAcceptsClient":true}}`)
	w.profile(w.name, "back", health(metav1.ConditionUnknown))
	stop()
	kit.NoError(t, w.Client().ClusterV1().ManagedClusters().Delete(t.Context(), w.name, metav1.DeleteOptions{}))
	stop = start()
	w.profile(w.name, "gone with a cluster that went while nobody looked", isGone)
	accept(w.World, w.name)
	w.profile(w.name, "there to be forgotten", health(metav1.ConditionUnknown))
	stop()
	w.forget() // no hub deletes the profile
	w.profile(w.name, "forgotten", isGone)
	for _, p := range []*unstructured.Unstructured{other, taken} {
		if now, err := w.Get(t.Context(), p.GetName(), metav1.GetOptions{}); err != nil || now.GetResourceVersion() != p.GetResourceVersion() {
			t.Errorf("%v: the profile of somebody else has changed: %+v", err, now)
		}
	}
}
