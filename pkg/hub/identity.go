package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/wire"
)

// IdentityConfigMap is the name of the ConfigMap that holds the identity of the hub's API, a UUID
// for each source id (docs/protocol.md, Source identity). It is in the namespace of the Lease.
// Agents hold the deletions of works that a hub with another identity does not know.
const IdentityConfigMap = "workwire-source-identity"

// identityRef returns the object that events about the source id are about.
func (c *Config) identityRef() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: IdentityConfigMap, Namespace: cmp.Or(c.Election.Namespace, leader.DefaultNamespace),
	}
}

// identity reads or makes the identity of the API for the hub's source id. It retries until ctx
// ends.
func (h *Hub) identity(ctx context.Context) (string, error) {
	core, err := corev1client.NewForConfig(h.cfg.REST)
	if err != nil {
		return "", fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	maps := core.ConfigMaps(h.cfg.identityRef().Namespace)
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 9, Cap: 30 * time.Second}
	for {
		identity, err := readIdentity(ctx, maps, h.cfg.Source)
		if err == nil {
			return identity, nil
		}
		h.cfg.Logger.Error("reading the source identity failed, retrying", "configMap", IdentityConfigMap, "error", err)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(backoff.Step()):
		}
	}
}

// clusterIdentity returns what a cluster is told as the identity of the API: another one for each ManagedCluster that it gets. A
// cluster that was forgotten, and comes back or gets a new ManagedCluster, thus holds the deletions of works of before that the hub
// does not know.
func (h *Hub) clusterIdentity(identity string, cluster wire.ClusterName) string {
	if h.clusters == nil {
		return identity
	}
	registered, ok := h.informers.ManagedClusters().Latest(types.NamespacedName{Name: string(cluster)})
	if !ok {
		return identity
	}
	return uuid.NewSHA1(uuid.MustParse(identity), []byte(registered.UID)).String() // readIdentity has checked it
}

// readIdentity returns the identity in the ConfigMap, which it makes if it does not exist.
func readIdentity(ctx context.Context, maps corev1client.ConfigMapInterface, source wire.SourceID) (string, error) {
	key := string(source)
	stored, err := maps.Get(ctx, IdentityConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		stored, err = maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: IdentityConfigMap}, Data: map[string]string{key: uuid.NewString()},
		}, metav1.CreateOptions{})
	case err == nil && stored.Data[key] == "":
		if stored.Data == nil {
			stored.Data = map[string]string{}
		}
		stored.Data[key] = uuid.NewString()
		stored, err = maps.Update(ctx, stored, metav1.UpdateOptions{}) // fails if another hub has changed it
	}
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s: %w", IdentityConfigMap, err)
	}
	if id, err := uuid.Parse(stored.Data[key]); err != nil || id.String() != stored.Data[key] {
		return "", errors.New("ConfigMap " + IdentityConfigMap + ": key " + key + " is not a UUID: remove the key to have a new identity made")
	}
	return stored.Data[key], nil
}
