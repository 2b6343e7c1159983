"""The design that comes to mind first: a Django REST framework view with nested serializers, token authentication in
the database and one ORM insert a report. The portal is measured against it in the same run."""
