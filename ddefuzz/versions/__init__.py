"""What findings do under several versions of torch: run them, and say in which they fail, are fixed or came back."""
