package nodeinfo

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// silent is an API that never answers.
type silent struct {
	coreclient.NodeInterface // nil: a call that is not written here fails loudly
	asked                    *atomic.Int32
}

func (s silent) Nodes() coreclient.NodeInterface { return s }

func (s silent) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.Node, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}
