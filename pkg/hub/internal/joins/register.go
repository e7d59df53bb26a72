package joins

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/security/enrolment"
)

// answer decides about a request, and writes what follows from that. An answer without a reason is not to be sent: the certificate
// follows by itself.
func (j *Joins) answer(ctx context.Context, p enrolment.Proven) enrolment.Answer {
	now := time.Now()
	if !j.challenges.Answered(p, now) {
		return enrolment.Answer{Request: p.ID, Reason: enrolment.Challenged, Challenge: j.challenges.New(p.DeviceHash, now)}
	}
	if j.outdated.Load() { // it may have been revoked, or forgotten
		return enrolment.Answer{Request: p.ID, Reason: enrolment.Busy, Message: "the hub knows less of who was revoked than the broker: its API was restored, see docs/operations.md"}
	}
	name := enrolment.RequestName(p.Cluster, p.CSR)
	verdict, first, certificate, err := j.admit(ctx, p, now)
	if err == nil && verdict.Reason == "" {
		j.wait(name, asked{request: p.ID, device: p.DeviceHash, certificate: certificate})
		err = j.ask(ctx, p, name, verdict.Approve, first)
	}
	if err != nil {
		j.waiting(name)
		if errors.Is(err, errTooMany) || errors.Is(err, errForeign) {
			return enrolment.Answer{Request: p.ID, Reason: enrolment.Busy, Message: err.Error()}
		}
		if !j.quiet() {
			j.cfg.Logger.Warn("a cluster that may join was not registered", "cluster", p.Cluster, "error", err)
		}
		return enrolment.Answer{Request: p.ID, Reason: enrolment.Busy, Message: "the hub could not write to its API server"}
	}
	if verdict.Reason != "" {
		return enrolment.Answer{Request: p.ID, Reason: verdict.Reason, Message: verdict.Message}
	}
	j.queue.Add(name) // it may have been answered before
	if verdict.Approve {
		return enrolment.Answer{Request: p.ID}
	}
	return enrolment.Answer{Request: p.ID, Reason: enrolment.WaitForApproval, Message: "kubectl certificate approve " + name}
}

// joinedWith is the index of ManagedClusters by the tokens that they have joined with.
const joinedWith = "joinedWith"

func indexToken(object any) ([]string, error) {
	if cluster, ok := object.(*clusterv1.ManagedCluster); ok {
		return v1alpha1.JoinTokens(cluster), nil
	}
	return nil, nil
}

// undone is the index of CertificateSigningRequests that wait for an approval or a signature, by their cluster.
const undone = "undone"

// errTooMany means that so many wait that a cluster gets no other one.
var errTooMany = fmt.Errorf("%d CertificateSigningRequests of the cluster wait for an approval or a signature: approve, deny or delete them", enrolment.MaxCertificates)

// errForeign means that somebody else has made the one that is to be made.
var errForeign = errors.New("there is one of this name for another key or signer: delete it")

func indexUndone(object any) ([]string, error) {
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok || len(csr.Status.Certificate) > 0 || has(csr, certificatesv1.CertificateDenied) || has(csr, certificatesv1.CertificateFailed) {
		return nil, nil
	}
	return []string{csr.Labels[v1alpha1.ClusterLabelKey]}, nil
}

// knownOf returns what a ManagedCluster, nil if there is none, says of who has joined as it.
func knownOf(cluster *clusterv1.ManagedCluster) enrolment.Known {
	if cluster == nil {
		return enrolment.Known{}
	}
	expires, _ := time.Parse(time.RFC3339, cluster.Annotations[v1alpha1.CertificateExpiresAnnotationKey])
	_, revoked := cluster.Annotations[v1alpha1.RevokedAnnotationKey]
	return enrolment.Known{
		Exists: true, Device: cluster.Annotations[v1alpha1.DeviceAnnotationKey], Tokens: v1alpha1.JoinTokens(cluster), Revoked: revoked,
		Deleting: cluster.DeletionTimestamp != nil, Expires: expires, Valid: len(enrolment.Unexpired(allIssued(cluster), time.Now())),
	}
}

// admit decides about a request, and makes the ManagedCluster or has it remember the device. first reports that the cluster has
// had no certificate. certificate is the one that the ManagedCluster says it has, if it was made so.
func (j *Joins) admit(ctx context.Context, p enrolment.Proven, now time.Time) (verdict enrolment.Verdict, first bool, certificate []byte, err error) {
	grant, uses := j.grant(p.Token), 0
	if grant != nil {
		// One at a time: a token must not be used once more than it may.
		j.registering.Lock()
		defer j.registering.Unlock()
		// One pass over the clusters of this token, for each request that proves to have it.
		others := j.cfg.Clusters.LatestList(joinedWith, p.Token)
		uses = len(slices.DeleteFunc(others, func(c *clusterv1.ManagedCluster) bool { return c.Name == string(p.Cluster) }))
	}
	cluster, _ := j.cfg.Clusters.Latest(types.NamespacedName{Name: string(p.Cluster)})
	known := knownOf(cluster)
	verdict = enrolment.Decide(p, grant, uses, known, j.cfg.Rejoin, now)
	if verdict.Register {
		if cluster == nil {
			certificate, err = j.create(ctx, p, grant)
		} else {
			err = j.remember(ctx, p, cluster, grant)
		}
		if err != nil {
			return verdict, false, nil, fmt.Errorf("register the cluster: %w", err)
		}
	}
	return verdict, known.Device != p.DeviceHash || known.Expires.IsZero(), certificate, nil
}

// ask makes the CertificateSigningRequest of a request, unless it is there, and perhaps approves it.
func (j *Joins) ask(ctx context.Context, p enrolment.Proven, name string, approve, first bool) error {
	csr, err := j.request(ctx, p, name, first)
	if err != nil {
		return fmt.Errorf("make the CertificateSigningRequest %s: %w", name, err)
	}
	if !approve || decided(csr) {
		return nil
	}
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonJoined, LastUpdateTime: metav1.Now(),
		Message: map[bool]string{true: "let in by the token " + p.Token, false: "its device has joined before"}[first],
	})
	written, err := j.cfg.Certificates.CertificateSigningRequests().UpdateApproval(ctx, name, csr, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("approve the CertificateSigningRequest %s: %w", name, err)
	}
	j.latest.Mutation(written)
	return nil
}

// create makes the ManagedCluster of a request. If the token lets it in and the key of the authority is here, it is made with its certificate, which is
// noted before anybody has it, as [Joins.issued] would by one more write.
func (j *Joins) create(ctx context.Context, p enrolment.Proven, grant *enrolment.Grant) (certificate []byte, err error) {
	cluster := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: string(p.Cluster), Labels: labelsOf(grant), Annotations: map[string]string{v1alpha1.DeviceAnnotationKey: p.DeviceHash}},
		// As it would become by two more writes: the token lets it in, and nobody has heard from it.
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: grant.Approve, Taints: []clusterv1.Taint{
			{Key: clusterv1.ManagedClusterTaintUnreachable, Effect: clusterv1.TaintEffectNoSelect, TimeAdded: metav1.NewTime(time.Now().Truncate(time.Second))},
		}},
	}
	if j.cfg.Authority != nil && grant.Approve && !j.cfg.AuthorityElsewhere { // with which the lock of the caller would be held for long
		parsed, err := enrolment.CheckCSR(p.CSR, p.Cluster)
		if err != nil {
			return nil, err
		}
		if certificate, err = j.issue(p.Cluster, parsed.PublicKey.(*ecdsa.PublicKey)); err != nil { // as CheckCSR has found
			return nil, err
		}
		chain, err := cert.ParseCertsPEM(certificate)
		if err != nil {
			return nil, err
		}
		notes, _ := j.note(nil, chain[0])
		maps.Copy(cluster.Annotations, notes)
	}
	created, err := j.cfg.Writer.ClusterV1().ManagedClusters().Create(ctx, cluster, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	j.cfg.Clusters.Created(created)
	return certificate, nil
}

// labelsOf returns the labels of a ManagedCluster that joins with a token.
func labelsOf(grant *enrolment.Grant) map[string]string {
	labels := map[string]string{v1alpha1.JoinTokenLabelKey: grant.ID()}
	maps.Copy(labels, grant.Labels)
	return labels
}

// remember writes the device to the ManagedCluster that is there.
func (j *Joins) remember(ctx context.Context, p enrolment.Proven, cluster *clusterv1.ManagedCluster, grant *enrolment.Grant) error {
	annotations := map[string]any{
		v1alpha1.DeviceAnnotationKey: p.DeviceHash, v1alpha1.CertificateExpiresAnnotationKey: nil, v1alpha1.FormerJoinTokensAnnotationKey: j.former(cluster, grant),
	}
	another := cluster.Annotations[v1alpha1.DeviceAnnotationKey] != p.DeviceHash
	if another {
		j.revoking.Lock()
		defer j.revoking.Unlock()
		if err := j.retire(ctx, cluster); err != nil {
			return err
		}
		annotations[v1alpha1.CertificatesAnnotationKey] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": cluster.ResourceVersion, "labels": labelsOf(grant), "annotations": annotations,
	}})
	if err != nil {
		return err
	}
	written, err := j.cfg.Writer.ClusterV1().ManagedClusters().Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		j.cfg.Clusters.Wrote(written)
	case another:
		j.unsure[cluster.Name] = true
	}
	return err
}

// former returns the tokens that a cluster has joined with before, and that somebody could still use, comma-separated; nil if there are none.
func (j *Joins) former(cluster *clusterv1.ManagedCluster, grant *enrolment.Grant) any {
	ids := slices.DeleteFunc(v1alpha1.JoinTokens(cluster), func(id string) bool {
		g := j.grant(id)
		return id == grant.ID() || g == nil || !g.Expires.After(time.Now())
	})
	if len(ids) == 0 {
		return nil
	}
	return strings.Join(ids, ",")
}

// request returns the CertificateSigningRequest of a request, and makes it if there is none.
func (j *Joins) request(ctx context.Context, p enrolment.Proven, name string, first bool) (*certificatesv1.CertificateSigningRequest, error) {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.ClusterLabelKey: string(p.Cluster), v1alpha1.SourceLabelKey: string(j.cfg.Source),
		}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: p.CSR}), SignerName: j.cfg.SignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if first {
		csr.Annotations = map[string]string{v1alpha1.FirstAnnotationKey: "true"}
	}
	// Somebody else may have made one of its name: what is approved is the request that the device has signed.
	same := func(have *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
		if !bytes.Equal(have.Spec.Request, csr.Spec.Request) || have.Spec.SignerName != csr.Spec.SignerName {
			return nil, errForeign
		}
		return have, nil
	}
	if object, found, err := j.latest.GetByKey(name); err == nil && found {
		return same(object.(*certificatesv1.CertificateSigningRequest))
	}
	if waiting, err := j.csrs.GetIndexer().ByIndex(undone, string(p.Cluster)); err != nil || len(waiting) >= enrolment.MaxCertificates {
		return nil, cmp.Or(err, errTooMany)
	}
	client := j.cfg.Certificates.CertificateSigningRequests()
	created, err := client.Create(ctx, csr, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return created, err
	}
	have, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return same(have)
}

// decided reports whether somebody has approved or denied a CertificateSigningRequest, or signing it has failed.
func decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Conditions) > 0
}
