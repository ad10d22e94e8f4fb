// The textbook program: a Pod is created, read, listed, updated in a loop that retries on conflict, patched and deleted.
package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"capstan-interop/internal/check"
)

func main() {
	ctx := context.Background()
	client := kubernetes.NewForConfigOrDie(check.Config())

	version, err := client.Discovery().ServerVersion()
	check.Must(err)
	check.That("discovery tells the version", version.Major == "1" && version.Minor == "36", version)

	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "go-crud-"},
	}, metav1.CreateOptions{})
	check.Must(err)
	pods := client.CoreV1().Pods(namespace.Name)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1.27"}}},
	}
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	check.Must(err)
	check.That("a created pod is defaulted", created.Spec.RestartPolicy == corev1.RestartPolicyAlways && created.UID != "", created)
	_, err = pods.Create(ctx, pod, metav1.CreateOptions{})
	check.That("a second create already exists", apierrors.IsAlreadyExists(err), err)
	_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}, metav1.CreateOptions{})
	check.That("a pod without containers is invalid", apierrors.IsInvalid(err), err)

	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web", Limit: 1})
	check.Must(err)
	check.That("a list finds it", len(list.Items) == 1 && list.Items[0].UID == created.UID, list)

	stale := created.DeepCopy()
	created.Labels["first"] = "yes"
	_, err = pods.Update(ctx, created, metav1.UpdateOptions{})
	check.Must(err)
	stale.Labels["second"] = "yes"
	_, err = pods.Update(ctx, stale, metav1.UpdateOptions{})
	check.That("a stale update conflicts", apierrors.IsConflict(err), err)

	// Another writer gets in between the read and the first write.
	attempts := 0
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		attempts++
		got, err := pods.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if attempts == 1 {
			patch := []byte(`{"metadata":{"annotations":{"other":"writer"}}}`)
			_, err := pods.Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			check.Must(err)
		}
		got.Spec.Containers[0].Image = "nginx:1.28"
		_, err = pods.Update(ctx, got, metav1.UpdateOptions{})
		return err
	})
	check.Must(err)
	got, err := pods.Get(ctx, "web", metav1.GetOptions{})
	check.Must(err)
	kept := got.Annotations["other"] == "writer" && got.Labels["first"] == "yes" && got.Spec.Containers[0].Image == "nginx:1.28"
	check.That("the loop of get, update and retry keeps both changes", attempts == 2 && kept, fmt.Sprint(attempts, got))

	got.Status.Phase = corev1.PodRunning
	got, err = pods.UpdateStatus(ctx, got, metav1.UpdateOptions{})
	check.Must(err)
	check.That("status is updated apart", got.Status.Phase == corev1.PodRunning, got.Status)

	wrong := types.UID("00000000-0000-0000-0000-000000000000")
	err = pods.Delete(ctx, "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	check.That("a delete of another uid conflicts", apierrors.IsConflict(err), err)
	check.Must(pods.Delete(ctx, "web", metav1.DeleteOptions{}))
	_, err = pods.Get(ctx, "web", metav1.GetOptions{})
	check.That("what is deleted is not found", apierrors.IsNotFound(err), err)

	for i := range 5 {
		name := fmt.Sprintf("c%d", i)
		_, err := client.CoreV1().ConfigMaps(namespace.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		check.Must(err)
	}
	var names []string
	options := metav1.ListOptions{Limit: 2}
	for pages := 1; ; pages++ {
		page, err := client.CoreV1().ConfigMaps(namespace.Name).List(ctx, options)
		check.Must(err)
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			check.That("a list comes in pages", pages == 3 && len(names) == 5, names)
			break
		}
	}
	check.Must(client.CoreV1().ConfigMaps(namespace.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	rest, err := client.CoreV1().ConfigMaps(namespace.Name).List(ctx, metav1.ListOptions{})
	check.Must(err)
	check.That("a collection is deleted", len(rest.Items) == 0, rest.Items)
}
