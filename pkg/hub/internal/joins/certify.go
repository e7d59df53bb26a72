package joins

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/wire"
)

// advance takes the next step with a CertificateSigningRequest: it signs what is approved, and answers who waits. It returns when to look at it again.
func (j *Joins) advance(ctx context.Context, name string) (after time.Duration, err error) {
	object, found, err := j.latest.GetByKey(name)
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if err != nil || !found || !ok {
		return 0, err
	}
	client := j.cfg.Certificates.CertificateSigningRequests()
	age, kept := time.Since(csr.CreationTimestamp.Time), keptDone
	switch {
	case !decided(csr):
		kept = keptOpen
	case has(csr, certificatesv1.CertificateDenied), has(csr, certificatesv1.CertificateFailed):
		j.tell(ctx, name, enrolment.Answer{Reason: enrolment.Denied, Message: "the CertificateSigningRequest " + name + " was denied, or could not be signed"})
	case len(csr.Status.Certificate) == 0:
		return 0, j.sign(ctx, csr)
	case expired(csr): // another one is made
		kept = 0
		if !j.quiet() {
			j.cfg.Logger.Info("a certificate has expired before its cluster had it, and is asked for again", "certificateSigningRequest", name)
		}
		j.tell(ctx, name, enrolment.Answer{Reason: enrolment.Busy, Message: "the certificate of the CertificateSigningRequest " + name + " has expired by the hub's clock: ask again"})
	default:
		if err := j.issued(ctx, csr); err != nil {
			return 0, err
		}
	}
	if age < kept {
		return kept - age, nil
	}
	if err := client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &csr.UID}}); !apierrors.IsNotFound(err) {
		return 0, err
	}
	return 0, nil
}

func has(csr *certificatesv1.CertificateSigningRequest, condition certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == condition })
}

// expired reports whether the certificate of a CertificateSigningRequest is valid no longer.
func expired(csr *certificatesv1.CertificateSigningRequest) bool {
	chain, err := cert.ParseCertsPEM(csr.Status.Certificate)
	return err == nil && time.Now().After(chain[0].NotAfter)
}

// parse returns the cluster that a CertificateSigningRequest is for, and its key. It returns an error if it is not one of an agent.
func parse(csr *certificatesv1.CertificateSigningRequest) (wire.ClusterName, *ecdsa.PublicKey, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return "", nil, errors.New("the request has no PEM")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return "", nil, err
	}
	cluster := wire.ClusterName(parsed.Subject.CommonName)
	if parsed, err = enrolment.CheckCSR(block.Bytes, cluster); err != nil {
		return "", nil, err
	}
	for _, usage := range csr.Spec.Usages {
		if usage != certificatesv1.UsageDigitalSignature && usage != certificatesv1.UsageClientAuth {
			return "", nil, fmt.Errorf("the usage %q is not that of an agent", usage)
		}
	}
	return cluster, parsed.PublicKey.(*ecdsa.PublicKey), nil // as CheckCSR has found
}

// sign issues the certificate of an approved CertificateSigningRequest; nothing without an authority.
func (j *Joins) sign(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	if j.cfg.Authority == nil || !has(csr, certificatesv1.CertificateApproved) {
		return nil
	}
	csr = csr.DeepCopy()
	cluster, public, err := parse(csr)
	if err != nil {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonNotOfAnAgent, Message: err.Error(), LastUpdateTime: metav1.Now(),
		})
	} else if csr.Status.Certificate = j.prepared(csr.Name); csr.Status.Certificate == nil {
		if csr.Status.Certificate, err = j.issue(cluster, public); err != nil {
			j.tell(ctx, csr.Name, enrolment.Answer{Reason: enrolment.Busy, Message: "the hub has approved this cluster and cannot sign its certificate; its log says why"})
			return fmt.Errorf("sign the certificate of the cluster %s: %w", cluster, err)
		}
	}
	written, err := j.cfg.Certificates.CertificateSigningRequests().UpdateStatus(ctx, csr, metav1.UpdateOptions{})
	switch {
	case err == nil:
		j.latest.Mutation(written)
	case apierrors.IsConflict(err):
		return nil // the informer will say what has changed
	}
	return err
}

// issue returns a certificate of the authority, in PEM.
func (j *Joins) issue(cluster wire.ClusterName, public *ecdsa.PublicKey) ([]byte, error) {
	authority, err := j.cfg.Authority()
	if err != nil {
		return nil, err
	}
	return certificates.IssueAgent(authority, string(cluster), public, j.cfg.Validity, time.Now())
}

// issued notes on the ManagedCluster until when its certificate is valid, accepts the cluster if it is its first, and gives the
// certificate to who waits for it. Nothing of that happens for a certificate that nobody has asked for over the broker.
func (j *Joins) issued(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	waits := j.waiting(csr.Name)
	if waits.request == "" {
		return nil
	}
	again := func(err error) error {
		j.wait(csr.Name, waits)
		return err
	}
	name, _, err := parse(csr)
	if err != nil {
		return err
	}
	chain, err := cert.ParseCertsPEM(csr.Status.Certificate)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	cluster, ok := j.cfg.Clusters.Latest(types.NamespacedName{Name: string(name)})
	if !ok {
		return again(fmt.Errorf("there is no ManagedCluster %s", name))
	}
	known := knownOf(cluster)
	if known.Revoked || known.Device != waits.device { // another device has joined as the cluster since
		return nil
	}
	// Noted before the cluster has it: a certificate that is not noted cannot be revoked. By its version, so that no other note is lost.
	notes, added := j.note(allIssued(cluster), chain[0])
	if added && known.Valid >= enrolment.MaxCertificates {
		return nil // asked for beside others, before these were noted
	}
	change := map[string]any{"metadata": map[string]any{"resourceVersion": cluster.ResourceVersion, "annotations": notes}}
	if csr.Annotations[v1alpha1.FirstAnnotationKey] == "true" && known.Expires.IsZero() {
		change["spec"] = map[string]any{"hubAcceptsClient": true}
	}
	if added {
		patch, err := json.Marshal(change)
		if err != nil {
			return again(err)
		}
		written, err := j.cfg.Writer.ClusterV1().ManagedClusters().Patch(ctx, string(name), types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return again(fmt.Errorf("accept the cluster %s: %w", name, err))
		}
		j.cfg.Clusters.Wrote(written)
	}
	trust, err := j.cfg.Trust()
	if err != nil {
		return again(err)
	}
	if !j.quiet() {
		j.cfg.Logger.Info("a cluster gets a certificate", "cluster", name, "expires", chain[0].NotAfter)
	}
	j.metrics.results.WithLabelValues("Issued").Inc()
	j.publish(ctx, enrolment.Answer{Request: waits.request, Certificate: csr.Status.Certificate, Trust: trust})
	return nil
}

// note returns the annotations of a ManagedCluster that has these certificates and gets one more, and whether that is not among them.
func (j *Joins) note(have []enrolment.Issued, cert *x509.Certificate) (annotations map[string]string, added bool) {
	noted, added := enrolment.Note(have, enrolment.IssuedOf(string(j.cfg.Source), cert), time.Now())
	return map[string]string{v1alpha1.CertificateExpiresAnnotationKey: cert.NotAfter.UTC().Format(time.RFC3339), v1alpha1.CertificatesAnnotationKey: noted}, added
}

// tell answers who waits for a CertificateSigningRequest.
func (j *Joins) tell(ctx context.Context, csr string, a enrolment.Answer) {
	if a.Request = j.waiting(csr).request; a.Request != "" {
		j.publish(ctx, a)
	}
}
