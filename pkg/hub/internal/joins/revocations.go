package joins

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
)

// revocationRetry is how long after a failure a revocation list is written or sent again.
const revocationRetry = 10 * time.Second

// revokedClusters is the index of ManagedClusters that are revoked; its one value is "true".
const revokedClusters = "revoked"

// revocations is what the ConfigMap has for a source. It is more than the ManagedClusters say: a certificate stays revoked when its
// ManagedCluster is deleted.
type revocations struct {
	Revoked []enrolment.RevokedCertificate `json:"revoked"`
	// crl is the list in DER; nil if there is none.
	crl []byte
	// replace: somebody has written replaceList in its place.
	replace bool
}

// replaceList in place of a list has the next one replace that of the broker, which is newer.
const replaceList = "replace"

func indexRevoked(object any) ([]string, error) {
	if cluster, ok := object.(*clusterv1.ManagedCluster); ok && isRevoked(cluster) {
		return []string{"true"}, nil
	}
	return nil, nil
}

func isRevoked(cluster *clusterv1.ManagedCluster) bool {
	if cluster == nil {
		return false
	}
	_, revoked := cluster.Annotations[v1alpha1.RevokedAnnotationKey]
	return revoked
}

func allIssued(cluster *clusterv1.ManagedCluster) []enrolment.Issued {
	return enrolment.ParseIssued(cluster.Annotations[v1alpha1.CertificatesAnnotationKey])
}

// issuedHere returns what a cluster has from this hub: another one of the same API has its own list, authority and broker.
func (j *Joins) issuedHere(cluster *clusterv1.ManagedCluster) []enrolment.Issued {
	return enrolment.Of(string(j.cfg.Source), allIssued(cluster))
}

// changed has the revocation list looked at if what has changed of a cluster may change it.
func (j *Joins) changed(before, after *clusterv1.ManagedCluster) {
	was, is := isRevoked(before), isRevoked(after)
	if was && after == nil {
		j.mu.Lock()
		j.gone = append(j.gone, enrolment.Holder{Name: before.Name, Revoked: true, Issued: j.issuedHere(before)})
		j.mu.Unlock()
	}
	if was != is || is && before.Annotations[v1alpha1.CertificatesAnnotationKey] != after.Annotations[v1alpha1.CertificatesAnnotationKey] {
		j.revise()
	}
}

// revise has the revocation list looked at and sent.
func (j *Joins) revise() {
	select {
	case j.revised <- struct{}{}:
	default:
	}
}

// keepRevocations keeps the ConfigMap and the broker up to date until ctx ends.
func (j *Joins) keepRevocations(ctx context.Context) {
	for ctx.Err() == nil {
		var retry <-chan time.Time
		if err := j.bringRevocations(ctx); err != nil && ctx.Err() == nil {
			if !j.quiet() && !errors.Is(err, transport.ErrNotConnected) {
				j.cfg.Logger.Warn("the revocation list was not brought to the broker, retrying", "error", err)
			}
			retry = time.After(revocationRetry)
		}
		select {
		case <-j.revised:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// bringRevocations brings the ConfigMap and the broker up to date, once.
func (j *Joins) bringRevocations(ctx context.Context) error {
	j.revoking.Lock()
	crl, err := j.reviseRevocations(ctx, nil)
	j.revoking.Unlock()
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // another hub has written its own list
		j.revise()
		return nil
	}
	if err != nil {
		j.metrics.untaken.Set(1)
		return err
	}
	taken, err := j.sendRevocations(ctx, crl)
	outdated := errors.Is(err, transport.ErrOutdated)
	j.metrics.untaken.Set(map[bool]float64{true: 1}[!taken && !outdated])
	if errors.Is(err, transport.ErrNotConnected) || ctx.Err() != nil {
		return err
	}
	if outdated || err == nil { // other errors say nothing of it
		j.metrics.outdated.Set(map[bool]float64{true: 1}[outdated])
		j.outdated.Store(outdated)
	}
	select {
	case <-j.answering:
	default:
		close(j.answering)
	}
	if outdated {
		return fmt.Errorf("it is older than the broker's, as after a restore of the hub's API: no cluster gets a certificate until those that were revoked since are revoked again, and %s.crl of the ConfigMap %s is %q, see docs/operations.md: %w",
			j.cfg.Source, v1alpha1.RevocationsConfigMap, replaceList, err)
	}
	j.revoking.Lock()
	defer j.revoking.Unlock()
	if err == nil && crl != nil && !bytes.Equal(j.compared, crl) {
		j.compared = crl
		j.revise() // what was revoked meanwhile waits for this
	}
	return err
}

// reviseRevocations writes the ConfigMap if it is not as the ManagedClusters say, with more certificates that are revoked. It returns the list in
// DER, nil without an authority, and while nobody is revoked without one that may sign lists. The caller holds revoking.
func (j *Joins) reviseRevocations(ctx context.Context, more []enrolment.RevokedCertificate) (crl []byte, err error) {
	if err := j.beSure(ctx); err != nil {
		return nil, err
	}
	stored, err := j.cfg.Core.ConfigMaps(j.cfg.Namespace).Get(ctx, v1alpha1.RevocationsConfigMap, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return nil, fmt.Errorf("read the ConfigMap %s: %w", v1alpha1.RevocationsConfigMap, err)
	}
	if absent {
		stored = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RevocationsConfigMap}}
	}
	have, err := j.readRevocations(stored)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	gone := slices.Clip(j.gone)
	j.mu.Unlock()
	defer func() {
		if err == nil {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.gone = j.gone[len(gone):] // only who holds revoking takes from it
		}
	}()
	next, err := j.next(have, gone, more, time.Now())
	if err != nil || absent && len(next.Revoked) == 0 && next.crl == nil {
		return nil, err
	}
	if !slices.Equal(have.Revoked, next.Revoked) || !bytes.Equal(have.crl, next.crl) {
		if err := j.storeRevocations(ctx, stored, next, absent); err != nil {
			return nil, fmt.Errorf("write the ConfigMap %s: %w", v1alpha1.RevocationsConfigMap, err)
		}
	}
	j.metrics.revoked.Set(float64(len(next.Revoked)))
	return next.crl, nil
}

// beSure reads the ManagedClusters that may have another device than the informer knows: by what they had before, its certificates would be accepted
// again, and nobody would know of them any more. The caller holds revoking.
func (j *Joins) beSure(ctx context.Context) error {
	for name := range j.unsure {
		cluster, err := j.cfg.Writer.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		_, seen := j.cfg.Clusters.Latest(types.NamespacedName{Name: name})
		switch {
		case err == nil:
			j.cfg.Clusters.Wrote(cluster)
		case !apierrors.IsNotFound(err) || seen: // what is gone stays revoked, once the informer knows
			return fmt.Errorf("read the ManagedCluster %s, which may have another device: %w", name, err)
		}
		delete(j.unsure, name)
	}
	return nil
}

// readRevocations returns what the ConfigMap has for this source.
func (j *Joins) readRevocations(stored *corev1.ConfigMap) (r revocations, err error) {
	key := string(j.cfg.Source)
	if text := stored.Data[key]; text != "" {
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return r, fmt.Errorf("ConfigMap %s, key %s: %w; delete the key to begin with the ManagedClusters that are revoked now", stored.Name, key, err)
		}
	}
	list := stored.Data[key+".crl"]
	if block, _ := pem.Decode([]byte(list)); block != nil {
		r.crl = block.Bytes
	}
	r.replace = strings.TrimSpace(list) == replaceList
	return r, nil
}

// next returns what is revoked now, with holders that are gone, and more. The list is signed again only if it changes, or is of another
// authority; and only once the broker has been asked whether it has a newer one, which the next one would undo. The first list has the number 1,
// also if nobody is on it: a broker that has another one refuses it. So a backup is noticed, and a ConfigMap that was lost.
func (j *Joins) next(have revocations, holders []enrolment.Holder, more []enrolment.RevokedCertificate, now time.Time) (revocations, error) {
	for _, cluster := range j.cfg.Clusters.LatestList(revokedClusters, "true") {
		holders = append(holders, enrolment.Holder{Name: cluster.Name, Revoked: true, Issued: j.issuedHere(cluster)})
	}
	for _, r := range have.Revoked {
		if cluster, ok := j.cfg.Clusters.Latest(types.NamespacedName{Name: r.Cluster}); ok && !isRevoked(cluster) {
			holders = append(holders, enrolment.Holder{Name: cluster.Name, Issued: j.issuedHere(cluster)})
		}
	}
	next := revocations{Revoked: enrolment.DecideRevoked(have.Revoked, holders, now), crl: have.crl}
	for _, r := range more {
		if !slices.Contains(next.Revoked, r) {
			next.Revoked = append(next.Revoked, r)
		}
	}
	if j.cfg.Authority == nil {
		return next, nil
	}
	authority, err := j.cfg.Authority()
	if err != nil {
		return next, err
	}
	serials, err := serialsOf(next.Revoked)
	if err != nil {
		return next, err
	}
	number := big.NewInt(1)
	if have.replace {
		number.SetInt64(now.UnixMilli())
	}
	if last, err := x509.ParseRevocationList(have.crl); err == nil {
		valid := authority.Leaf != nil && last.CheckSignatureFrom(authority.Leaf) == nil
		if valid && (lists(last, serials) || !bytes.Equal(have.crl, j.compared)) {
			return next, nil
		}
		number.SetInt64(max(now.UnixMilli(), last.Number.Int64()+1))
	}
	crl, err := certificates.RevocationList(authority, serials, number, now)
	if err != nil && have.crl == nil && len(serials) == 0 {
		return next, nil // an authority that may sign no lists: none is needed before somebody is revoked
	}
	next.crl = crl
	return next, err
}

// lists reports whether a list has these serial numbers, and no others.
func lists(list *x509.RevocationList, serials []*big.Int) bool {
	return slices.EqualFunc(list.RevokedCertificateEntries, serials, func(e x509.RevocationListEntry, s *big.Int) bool { return e.SerialNumber.Cmp(s) == 0 })
}

func serialsOf(revoked []enrolment.RevokedCertificate) ([]*big.Int, error) {
	serials := make([]*big.Int, 0, len(revoked))
	for _, r := range revoked {
		serial, ok := new(big.Int).SetString(r.Serial, 16)
		if !ok {
			return nil, fmt.Errorf("revoked certificate of %s: %.50q is no serial number", r.Cluster, r.Serial)
		}
		serials = append(serials, serial)
	}
	return serials, nil
}

func (j *Joins) storeRevocations(ctx context.Context, stored *corev1.ConfigMap, r revocations, absent bool) error {
	key := string(j.cfg.Source)
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if stored.Data == nil {
		stored.Data = map[string]string{}
	}
	stored.Data[key] = string(text)
	if r.crl != nil {
		stored.Data[key+".crl"] = string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: r.crl}))
	}
	maps := j.cfg.Core.ConfigMaps(j.cfg.Namespace)
	if absent {
		_, err = maps.Create(ctx, stored, metav1.CreateOptions{})
	} else {
		_, err = maps.Update(ctx, stored, metav1.UpdateOptions{}) // fails if another hub has changed it
	}
	return err
}

// sendRevocations sends a revocation list to the broker, which takes it in place of the one before. taken reports whether it has, or there is
// nothing to take.
func (j *Joins) sendRevocations(ctx context.Context, crl []byte) (taken bool, err error) {
	if crl == nil {
		return true, nil
	}
	e := cloudevents.New()
	e.SetID(enrolment.NewID())
	e.SetType("dev.workwire.v1alpha1.joins.status.update_request")
	e.SetSource(string(j.cfg.Source))
	if err := e.SetData("application/pkix-crl", crl); err != nil {
		return false, err
	}
	var nobody bool
	if t, ok := j.cfg.Transport.(transport.SubscriberReporter); ok {
		nobody, err = t.PublishReporting(ctx, j.topics.Revocations(), e)
	} else {
		err = j.cfg.Transport.Publish(ctx, j.topics.Revocations(), e)
	}
	if errors.Is(err, transport.ErrNotAuthorized) {
		nobody, err = true, nil
	}
	if list, parseErr := x509.ParseRevocationList(crl); parseErr == nil && len(list.RevokedCertificateEntries) == 0 {
		nobody = false // there is nothing to take
	}
	if nobody {
		j.cfg.Logger.Warn("this broker takes no revocation lists from hubs: give it the one in the ConfigMap, see docs/join.md", "configMap", v1alpha1.RevocationsConfigMap)
	}
	return err == nil && !nobody, err
}

// retire revokes the certificates of a device in whose place another one joins. The caller holds revoking, until the ManagedCluster has them no
// longer: what it has, and is not revoked, is accepted.
func (j *Joins) retire(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	var more []enrolment.RevokedCertificate
	for _, i := range enrolment.Unexpired(j.issuedHere(cluster), time.Now()) {
		more = append(more, enrolment.RevokedCertificate{Cluster: cluster.Name, Serial: i.Serial, Expires: i.Expires})
	}
	if len(more) == 0 {
		return nil
	}
	_, err := j.reviseRevocations(ctx, more)
	j.revise() // sends it
	return err
}
